INSERT INTO @extschema@.pending (lane, token) VALUES ($1, $2)
