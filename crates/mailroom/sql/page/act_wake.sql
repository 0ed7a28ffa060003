-- Makes the worker and other deliverers look at everything and probe paused transports, for admin: whether there is a worker.
SELECT mailroom_wake_worker() AS done
