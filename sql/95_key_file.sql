-- The key file of this server, made when there is none.
--
-- Last, so that a CREATE EXTENSION that fails leaves no key file behind. What it does is in 20_tokens/30_signing.sql.

SELECT @extschema@._create_key_file();
