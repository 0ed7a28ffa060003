-- Pauses the worker, for admin: whether it was not paused.
SELECT mailroom_pause() AS done
