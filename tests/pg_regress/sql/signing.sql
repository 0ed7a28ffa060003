-- mailroom_sign and mailroom_verify: the known answers of tests/vectors/tokens.json, arguments that are
-- missing or malformed, rotation, and a key file that is broken in each of the ways there are: what is said,
-- with which SQLSTATE and which remedy, and never a byte of the content.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set SHOW_CONTEXT never

-- The key file of this session; its path varies, so it is masked wherever it would show.
SELECT current_setting('data_directory') || '/signing.key' AS path \gset
SET mailroom.key_file = :'path';
-- Puts this into a new key file, byte for byte, with this mode.
CREATE PROCEDURE pg_temp.write_key_file(content text, mode text DEFAULT '0600') LANGUAGE plpgsql AS $$
DECLARE
    path text := current_setting('mailroom.key_file');
BEGIN
    EXECUTE format(
        'COPY (SELECT %L) TO PROGRAM %L',
        translate(encode(content::bytea, 'base64'), E'\n', ''),
        format('umask 077; rm -f %1$s; base64 -d >%1$s; chmod %2$s %1$s', path, mode)
    );
END;
$$;
-- How a statement is refused.
CREATE FUNCTION pg_temp.refusal(statement text)
RETURNS TABLE (state text, message text, detail text, hint text)
LANGUAGE plpgsql AS $$
DECLARE
    path text := current_setting('mailroom.key_file');
BEGIN
    EXECUTE statement;
    message := 'accepted';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS
        state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    message := replace(message, path, 'PATH');
    detail := replace(detail, path, 'PATH');
    hint := replace(hint, path, 'PATH');
    RETURN NEXT;
END;
$$;
\set key_a deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef
\set key_b cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe

-- Known answers.
CALL pg_temp.write_key_file(:'key_a');
SELECT mailroom_verify(token, 'activation') AS published
FROM (VALUES
    ('Qg84W2nmW8ClkDGZBdoC7UXM0BakAhmlBmR4emc4JJji0aMHLqfdM07rn1sHN8tvGk9go-hsKJMwvtqdGm5Cjw'),
    ('BfQXx31qfY2IJFTtzAp21IdeW0dDIxUT1Ejf3tYJDukNsfaxxOfldwL-lEfVy4SEkZ_v18rf-EWsvWXH5qgvIg')
) v (token);
SELECT
    mailroom_sign('password_recovery', decode(secret, 'hex'), code) = token AS signed,
    mailroom_verify(token, 'password_recovery', code) AS verified,
    mailroom_verify(token, 'activation', code) AS as_activation
FROM (VALUES
    ('00000', '6ff4a401c9caf140b8fa31b224ac33ad3e5330e1facd0e34b17f51d0f353103e',
     'b_SkAcnK8UC4-jGyJKwzrT5TMOH6zQ40sX9R0PNTED4PQMcE8f5OWcsZmTYp4-HM6CSb3D94ImJMCTEMyMrkYA'),
    ('35866', '5374365e91f43192cad8a0831f0203f113e68e7212773b7eb6eee2f01a66064d',
     'U3Q2XpH0MZLK2KCDHwID8RPmjnISdzt-tu7i8BpmBk2LWRhAToxsm3-RZ7H9rfGj6b6IWgpd1B6EUmpvJSlMmg'),
    ('99999', '9f2c6d72ddb2e45a6aeecf5da40e80e0cf39ef091f0d1a489efcee5233605c36',
     'nyxtct2y5Fpq7s9dpA6A4M857wkfDRpInvzuUjNgXDaQQqAV7FeqqwtuDEZJsZUdXYfkWK9Hf8xRBz7xI8QK4w')
) v (code, secret, token);
-- The secret of the first published token, which sign takes as tokens.secret gives it.
SELECT mailroom_sign(
    'activation',
    decode('420f385b69e65bc0a590319905da02ed45ccd016a40219a50664787a67382498', 'hex')
);
-- A code says nothing in an activation.
SELECT
    mailroom_sign('activation', secret) = mailroom_sign('activation', secret, '12345') AS sign,
    mailroom_verify(mailroom_sign('activation', secret), 'activation', '12345') AS verify,
    mailroom_verify(mailroom_sign('activation', secret), 'activation', 'rubbish') AS rubbish
FROM decode(repeat('07', 32), 'hex') secret;
-- Named arguments.
SELECT length(mailroom_sign(action => 'password_recovery', secret => decode(repeat('07', 32), 'hex'), code => '00042'));

-- Forgeries, all of them false and none an error.
\set good Qg84W2nmW8ClkDGZBdoC7UXM0BakAhmlBmR4emc4JJji0aMHLqfdM07rn1sHN8tvGk9go-hsKJMwvtqdGm5Cjw
SELECT what, mailroom_verify(token, action, code) AS verified
FROM (VALUES
    ('the genuine one', :'good', 'activation'::token_action, NULL),
    ('another action', :'good', 'password_recovery', '00000'),
    ('another action without a code', :'good', 'password_recovery', NULL),
    ('non-canonical trailing bits', left(:'good', 85) || 'x', 'activation', NULL),
    ('padded', :'good' || '==', 'activation', NULL),
    ('standard alphabet', 'BfQXx31qfY2IJFTtzAp21IdeW0dDIxUT1Ejf3tYJDukNsfaxxOfldwL+lEfVy4SEkZ/v18rf+EWsvWXH5qgvIg', 'activation', NULL),
    ('one character short', left(:'good', 85), 'activation', NULL),
    ('one character long', :'good' || 'A', 'activation', NULL),
    ('first character changed', overlay(:'good' PLACING 'A' FROM 1), 'activation', NULL),
    ('last whole character changed', overlay(:'good' PLACING 'A' FROM 85), 'activation', NULL),
    ('space before', ' ' || :'good', 'activation', NULL),
    ('newline after', :'good' || E'\n', 'activation', NULL),
    ('newline within', overlay(:'good' PLACING E'\n' FROM 43), 'activation', NULL),
    ('other case', lower(:'good'), 'activation', NULL),
    ('empty', '', 'activation', NULL),
    ('not ASCII', repeat('é', 86), 'activation', NULL),
    ('very long', repeat('A', 1000000), 'activation', NULL),
    ('no token', NULL, 'activation', NULL),
    ('no action', :'good', NULL, NULL),
    ('published as a recovery, with the MAC of an activation',
     '0WEKrnjY_sTEqogrR6qsp7r7Vg4SQ_0iM_1La5hHp5p31nbkrHUBS0Cz9T24iBDCk6CFqO7tJTihpsOVuHYgLg',
     'password_recovery', '35866')
) v (what, token, action, code);
\set recovery U3Q2XpH0MZLK2KCDHwID8RPmjnISdzt-tu7i8BpmBk2LWRhAToxsm3-RZ7H9rfGj6b6IWgpd1B6EUmpvJSlMmg
SELECT code, mailroom_verify(:'recovery', 'password_recovery', code) AS verified
FROM (VALUES ('35866'), ('35867'), ('3586'), ('358660'), (' 35866'), ('35866 '), ('٣٥٨٦٦'), (''), (NULL)) v (code);

-- What sign needs.
SELECT what, r.*
FROM (VALUES
    ('31 bytes', $$'activation', decode(repeat('07', 31), 'hex')$$),
    ('33 bytes', $$'activation', decode(repeat('07', 33), 'hex')$$),
    ('no bytes', $$'activation', ''::bytea$$),
    ('no secret', $$'activation', NULL$$),
    ('no action', $$NULL, decode(repeat('07', 32), 'hex')$$),
    ('no code', $$'password_recovery', decode(repeat('07', 32), 'hex')$$),
    ('code of four digits', $$'password_recovery', decode(repeat('07', 32), 'hex'), '1234'$$),
    ('code with a letter', $$'password_recovery', decode(repeat('07', 32), 'hex'), '1234a'$$),
    ('code in Arabic digits', $$'password_recovery', decode(repeat('07', 32), 'hex'), '١٢٣٤٥'$$)
) v (what, arguments)
CROSS JOIN LATERAL pg_temp.refusal(format('SELECT mailroom_sign(%s)', arguments)) r \gx
\set VERBOSITY terse
SELECT mailroom_sign('invitation', decode(repeat('07', 32), 'hex'));
\set VERBOSITY default

-- Rotation: a new first line signs, the old line still verifies; without it the old tokens are void. Each is
-- in force with the next transaction.
SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex')) AS by_a \gset
CALL pg_temp.write_key_file(:'key_b' || E'\n' || :'key_a');
SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex')) AS by_b \gset
SELECT :'by_a' = :'by_b' AS same, mailroom_verify(:'by_a', 'activation') AS old, mailroom_verify(:'by_b', 'activation') AS new;
CALL pg_temp.write_key_file(:'key_b');
SELECT mailroom_verify(:'by_a', 'activation') AS old, mailroom_verify(:'by_b', 'activation') AS new;
-- Comments, empty lines, capitals, spaces around and carriage returns are fine.
CALL pg_temp.write_key_file(E'# rotated in spring\n\n  ' || upper(:'key_b') || E'  \r\n# the old one\r\n' || :'key_a' || E'\r\n\n');
SELECT mailroom_verify(:'by_a', 'activation') AS old, mailroom_verify(:'by_b', 'activation') AS new;
SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex')) = :'by_b' AS signed_by_first;

-- Broken files. Both functions say the same. (A program that is sent nothing cannot miss it by ending early.)
CREATE PROCEDURE pg_temp.show(what text) LANGUAGE plpgsql AS $$
DECLARE
    signing record;
    verifying record;
BEGIN
    SELECT * INTO signing FROM pg_temp.refusal($sql$SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))$sql$);
    SELECT * INTO verifying FROM pg_temp.refusal($sql$SELECT mailroom_verify('', 'activation')$sql$);
    IF signing <> verifying THEN
        RAISE WARNING 'they differ: % and %', signing, verifying;
    END IF;
    INSERT INTO said VALUES (what, signing.state, signing.message, signing.detail, signing.hint);
END;
$$;
-- Another path: keys that this session has in memory would go on for a file of theirs that breaks.
SELECT current_setting('data_directory') || '/broken.key' AS broken \gset
SET mailroom.key_file = :'broken';
CREATE TEMPORARY TABLE said (what text, state text, message text, detail text, hint text);
CALL pg_temp.write_key_file(:'key_a', '0640');
CALL pg_temp.show('group-readable');
CALL pg_temp.write_key_file(:'key_a', '0604');
CALL pg_temp.show('readable by all');
CALL pg_temp.write_key_file(:'key_a', '0620');
CALL pg_temp.show('group-writable');
CALL pg_temp.write_key_file(:'key_a', '0000');
CALL pg_temp.show('unreadable');
CALL pg_temp.write_key_file('');
CALL pg_temp.show('empty');
CALL pg_temp.write_key_file(E'\n\n');
CALL pg_temp.show('nothing but empty lines');
CALL pg_temp.write_key_file(E'# soon\n');
CALL pg_temp.show('nothing but a comment');
CALL pg_temp.write_key_file(:'key_a' || E'\n' || left(:'key_b', 63));
CALL pg_temp.show('a short second line');
CALL pg_temp.write_key_file(:'key_a' || 'f');
CALL pg_temp.show('a long line');
CALL pg_temp.write_key_file('g' || right(:'key_a', 63));
CALL pg_temp.show('not hexadecimal');
CALL pg_temp.write_key_file(:'key_a' || ' ' || :'key_b');
CALL pg_temp.show('two keys in a line');
CALL pg_temp.write_key_file(E'\uFEFF' || :'key_a');
CALL pg_temp.show('a byte order mark');
CALL pg_temp.write_key_file(:'key_a' || E'\r' || :'key_b');
CALL pg_temp.show('lines that end in a carriage return alone');
CALL pg_temp.write_key_file(repeat('#', 65537));
CALL pg_temp.show('too large');
COPY (SELECT WHERE false) TO PROGRAM 'rm -f broken.key';
CALL pg_temp.show('missing');
COPY (SELECT WHERE false) TO PROGRAM 'mkfifo -m 0600 broken.key';
CALL pg_temp.show('a named pipe');
COPY (SELECT WHERE false) TO PROGRAM 'rm broken.key; mkdir -m 0700 broken.key';
CALL pg_temp.show('a directory');
COPY (SELECT WHERE false) TO PROGRAM 'rmdir broken.key; ln -s /etc/passwd broken.key';
CALL pg_temp.show('a file of root''s that all may read');
COPY (SELECT WHERE false) TO PROGRAM 'ln -sf mailroom.key broken.key';
CALL pg_temp.show('a link to a good file');
COPY (SELECT WHERE false) TO PROGRAM 'rm broken.key';
CALL pg_temp.show('missing, with its keys in memory');
SET mailroom.key_file = '/nonexistent/mailroom.key';
CALL pg_temp.show('missing with its directory');
SET mailroom.key_file = '/etc/passwd/mailroom.key';
CALL pg_temp.show('below a file');
SELECT what, state, message FROM said;
SELECT DISTINCT detail FROM said WHERE detail IS NOT NULL;
SELECT DISTINCT ON (hint) what AS for_example, hint FROM said WHERE hint IS NOT NULL ORDER BY hint, what;
-- Not a byte of a key in any of it.
SELECT count(*) FROM said WHERE said::text ~* '(deadbeef|cafebabe)';

-- CREATE EXTENSION makes a missing file and judges one that is there.
DROP EXTENSION mailroom CASCADE;
SET mailroom.key_file = :'path';
COPY (SELECT WHERE false) TO PROGRAM 'rm -f signing.key';
CREATE EXTENSION mailroom;
SELECT size, (pg_stat_file(:'path')).isdir FROM pg_stat_file(:'path');
CREATE TEMPORARY TABLE listing (line text);
COPY listing FROM PROGRAM 'stat -c %a signing.key; grep -c ''^[0-9a-f]\{64\}$'' signing.key; ls -d signing.key*';
TABLE listing;
SELECT mailroom_verify(mailroom_sign('activation', decode(repeat('07', 32), 'hex')), 'activation');
DROP EXTENSION mailroom;
-- A good one is kept: an extension that is installed again still knows the links it sent.
CALL pg_temp.write_key_file(:'key_a');
CREATE EXTENSION mailroom;
SELECT mailroom_verify(:'good', 'activation');
DROP EXTENSION mailroom;
-- A bad one is reported by CREATE EXTENSION, and nothing is installed.
CALL pg_temp.write_key_file(:'key_a', '0644');
SELECT * FROM pg_temp.refusal('CREATE EXTENSION mailroom');
SELECT count(*) FROM pg_extension WHERE extname = 'mailroom';
-- So is a directory that is not there.
SET mailroom.key_file = '/nonexistent/mailroom.key';
SELECT * FROM pg_temp.refusal('CREATE EXTENSION mailroom');

-- The path is no business of ordinary roles, nor may they change it.
CREATE ROLE mail_reader;
SET ROLE mail_reader;
\set VERBOSITY sqlstate
SHOW mailroom.key_file;
SET mailroom.key_file = '/tmp/mine';
SELECT setting FROM pg_settings WHERE name = 'mailroom.key_file';
RESET ROLE;
DROP ROLE mail_reader;
\set VERBOSITY default

COPY (SELECT WHERE false) TO PROGRAM 'rm -f signing.key';
