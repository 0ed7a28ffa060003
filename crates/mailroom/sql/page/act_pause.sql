-- Pauses the worker, for admin: whether it was not paused.
SELECT @extschema@.mailroom_pause() AS done
