-- mailroom_collector: all that mailroom_sender may, and takes tokens out of pending, signs them, writes the outbox and
-- job_runs, answers requests and purges.
--
-- The worker runs as this role.

GRANT mailroom_sender TO mailroom_collector;

GRANT SELECT ON @extschema@.pending TO mailroom_collector;
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
    @extschema@._scan_begin(),
    @extschema@._scan_position(smallint),
    @extschema@._scan_end(boolean, bigint, bigint),
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
    @extschema@.mailroom_purge(integer),
    @extschema@._walk_from(text),
    @extschema@._purge(integer, boolean),
    @extschema@._forget_workers(),
    @extschema@._forget_deliverers(),
    @extschema@._worker_report()
TO mailroom_collector;

-- It answers requests by a SECURITY DEFINER function, without reading addresses or writing tokens; it may read whether
-- there are any.
GRANT SELECT (id) ON @extschema@.link_requests TO mailroom_collector;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_answer_requests(integer) TO mailroom_collector;
