-- Makes the worker and other deliverers look at everything and probe paused transports, for admin: whether there is a worker.
SELECT @extschema@.mailroom_wake_worker() AS done
