-- Ends the pause of the worker, for admin: whether there was one.
SELECT @extschema@.mailroom_resume() AS done
