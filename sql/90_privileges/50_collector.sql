-- mailroom_collector: all that mailroom_sender may, and takes tokens out of pending, signs them, writes the outbox and
-- job_runs, answers requests and purges.
--
-- The worker runs as this role.

GRANT mailroom_sender TO mailroom_collector;

GRANT SELECT ON @extschema@.pending TO mailroom_collector;

-- The articles' own query. It sees no more than _token_verdicts shows.
GRANT SELECT (id, action, secret, code, account, expires_at, consumed_at) ON @extschema@.tokens TO mailroom_collector;
GRANT SELECT (id, email, login, status) ON @extschema@.accounts TO mailroom_collector;
GRANT SELECT, UPDATE (last_seq) ON @extschema@.jobs TO mailroom_collector;
GRANT EXECUTE ON FUNCTION @extschema@._first_read(bigint) TO mailroom_collector;

GRANT SELECT ON @extschema@._token_verdicts TO mailroom_collector;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._last_seq TO mailroom_collector;
GRANT SELECT ON @extschema@.job_runs TO mailroom_collector;
GRANT INSERT ON @extschema@._new_job_runs TO mailroom_collector;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq, @extschema@.job_runs_id_seq TO mailroom_collector;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_dequeue(integer),
    @extschema@.mailroom_dequeue_line(integer),
    @extschema@.mailroom_collect(integer),
    @extschema@.mailroom_verify(text, @extschema@.token_action, text),
    @extschema@._secrets(text, bytea, text),
    @extschema@._sign(text, bytea, text),
    @extschema@._verify(text, text, text),
    @extschema@._scan_sweep(text),
    @extschema@._scan_next_id(text),
    @extschema@._delete_pending(integer),
    @extschema@._record_unusable(bigint[], bigint[]),
    @extschema@._note_progress(bigint),
    @extschema@._dequeue(integer, text),
    @extschema@._insert_outbox(bigint[]),
    @extschema@._insert_outbox_one_by_one(bigint[]),
    @extschema@._fail_token(bigint, text, text),
    @extschema@._is_row_at_fault(text),
    @extschema@._mask_error(text),
    @extschema@._visible(text),
    @extschema@._message_id(),
    @extschema@._route(text),
    @extschema@._collect(integer, integer),
    @extschema@._pending_summary(integer),
    @extschema@._maintain_outbox(),
    @extschema@._others_deliver(text[]),
    @extschema@._run_batch(integer, text),
    @extschema@._expire_previous_claims(text),
    @extschema@._end_leases(tid[], timestamptz),
    @extschema@.mailroom_purge(integer),
    @extschema@._purge(integer, boolean),
    @extschema@._forget_workers(),
    @extschema@._forget_deliverers(),
    @extschema@._worker_report()
TO mailroom_collector;

-- It answers requests by a SECURITY DEFINER function, without reading addresses or writing tokens; it may read whether
-- there are any.
GRANT SELECT (id) ON @extschema@.link_requests TO mailroom_collector;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_answer_requests(integer) TO mailroom_collector;
