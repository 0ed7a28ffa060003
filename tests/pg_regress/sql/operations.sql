-- Operations on a server without a worker: mailroom_status tells what waits and that no worker takes it;
-- mailroom_pause and mailroom_resume are transactional, say whether they changed something, and stop the
-- worker alone, not the clients who collect or dequeue.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\pset null NULL

-- Always one row. Ages vary, so they are shown as there or not.
CREATE TEMPORARY VIEW status AS
SELECT
    worker_pid, since, paused, last_batch_at, waiting,
    oldest_waiting >= interval '1 hour' AS waits_for_an_hour,
    errors_in_a_row, next_wake_at, next_wake_for
FROM mailroom_status();
TABLE status;
INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 3) i;
UPDATE tokens SET created_at = created_at - 3600, expires_at = expires_at + 3600 WHERE id = 1;
TABLE status;
-- The oldest is looked for in both lanes.
DELETE FROM tokens WHERE id = 1;
UPDATE accounts SET status = 'active' WHERE id = 3;
INSERT INTO tokens (account, action, created_at) SELECT 3, 'password_recovery', floor(extract(epoch FROM now())) - 3600;
TABLE status;

-- A link that is sent again waits since it was asked for again; requests wait as well.
BEGIN;
DELETE FROM tokens;
INSERT INTO tokens (account, action, created_at, expires_at, sent_again_at)
SELECT 3, 'password_recovery', t.now - 7200, t.now + 7200, ARRAY[t.now - 60, t.now - 1] FROM (SELECT floor(extract(epoch FROM now()))::bigint) t (now);
TABLE status;
INSERT INTO link_requests (action, email, requested_at) VALUES ('password_recovery', 'a@example.com', now() - interval '2 hours');
TABLE status;
-- A link that is sent again does not hide what has waited for longer.
DELETE FROM link_requests;
INSERT INTO tokens (account, action, created_at, expires_at)
SELECT 3, 'password_recovery', t.now - 7200, t.now + 7200 FROM (SELECT floor(extract(epoch FROM now()))::bigint) t (now);
TABLE status;
ROLLBACK;

-- Paused, and by whom.
SELECT mailroom_pause();
SELECT mailroom_pause();
SELECT job_type, since <= now() AS since, paused_by = session_user AS by_me FROM pauses;
SELECT paused FROM status;
INSERT INTO accounts (email, login) VALUES ('later@example.com', 'later');
SELECT login FROM mailroom_dequeue(1);
SELECT mailroom_collect();
SELECT waiting FROM status;
SELECT mailroom_resume();
SELECT mailroom_resume();
TABLE pauses;
SELECT paused FROM status;

-- Nothing happens before COMMIT.
BEGIN;
SELECT mailroom_pause();
SELECT paused FROM status;
ROLLBACK;
SELECT paused FROM status;
SELECT mailroom_pause();
BEGIN;
SELECT mailroom_resume();
ROLLBACK;
SELECT paused FROM status;

-- The one address that gets all mail in development: the database's before the session's. The status also shows a value
-- that is not an address, with which no mail is claimed to be sent.
SELECT redirect_to, _redirect_to() FROM mailroom_status();
SET mailroom.redirect_to = 'dev@example.org';
SELECT redirect_to, _redirect_to() FROM mailroom_status();
ALTER DATABASE :"DBNAME" SET mailroom.redirect_to = 'Developer <dev@example.org>';
SELECT redirect_to FROM mailroom_status();
SELECT _redirect_to();
ALTER DATABASE :"DBNAME" SET mailroom.redirect_to = '';
SELECT redirect_to, _redirect_to() FROM mailroom_status();
ALTER DATABASE :"DBNAME" RESET mailroom.redirect_to;
SELECT redirect_to, _redirect_to() FROM mailroom_status();
RESET mailroom.redirect_to;

-- There is no worker to wake.
SELECT mailroom_wake_worker();

DROP VIEW status;
DROP EXTENSION mailroom;
