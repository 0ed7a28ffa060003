//! What CREATE EXTENSION runs: the files of `sql/` in the order of their numbers.

#![forbid(unsafe_code)]

use pgrx::prelude::*;

/// Each file requires the one before it. The first comes before everything that pgrx generates for the tests, and the
/// last after it.
macro_rules! files {
    ($first:tt = $path:tt, $($rest:tt)+) => {
        extension_sql_file!($path, name = $first, bootstrap);
        files!(after $first: $($rest)+);
    };
    (after $before:tt: $last:tt = $path:tt,) => {
        extension_sql_file!($path, name = $last, finalize, requires = [$before]);
    };
    (after $before:tt: $next:tt = $path:tt, $($rest:tt)+) => {
        extension_sql_file!($path, name = $next, requires = [$before]);
        files!(after $next: $($rest)+);
    };
}

files! {
    "05_version" = "../sql/05_version.sql",
    "06_library" = "../sql/06_library.sql",
    "10_accounts_10_accounts" = "../sql/10_accounts/10_accounts.sql",
    "10_accounts_20_attached" = "../sql/10_accounts/20_attached.sql",
    "10_accounts_25_attachment" = "../sql/10_accounts/25_attachment.sql",
    "10_accounts_30_attach" = "../sql/10_accounts/30_attach.sql",
    "20_tokens_10_tokens" = "../sql/20_tokens/10_tokens.sql",
    "20_tokens_20_lifecycle" = "../sql/20_tokens/20_lifecycle.sql",
    "20_tokens_30_signing" = "../sql/20_tokens/30_signing.sql",
    "20_tokens_40_eligibility" = "../sql/20_tokens/40_eligibility.sql",
    "20_tokens_50_revoke" = "../sql/20_tokens/50_revoke.sql",
    "20_tokens_60_redeem" = "../sql/20_tokens/60_redeem.sql",
    "20_tokens_70_requests" = "../sql/20_tokens/70_requests.sql",
    "30_pending_10_pending" = "../sql/30_pending/10_pending.sql",
    "30_pending_15_jobs" = "../sql/30_pending/15_jobs.sql",
    "30_pending_20_dequeue" = "../sql/30_pending/20_dequeue.sql",
    "30_pending_30_collect" = "../sql/30_pending/30_collect.sql",
    "40_outbox_10_outbox" = "../sql/40_outbox/10_outbox.sql",
    "40_outbox_20_states" = "../sql/40_outbox/20_states.sql",
    "40_outbox_25_events" = "../sql/40_outbox/25_events.sql",
    "40_outbox_27_suppressions" = "../sql/40_outbox/27_suppressions.sql",
    "40_outbox_28_unsubscribe" = "../sql/40_outbox/28_unsubscribe.sql",
    "40_outbox_29_operator_actions" = "../sql/40_outbox/29_operator_actions.sql",
    "40_outbox_30_history" = "../sql/40_outbox/30_history.sql",
    "40_outbox_40_routes" = "../sql/40_outbox/40_routes.sql",
    "40_outbox_50_templates" = "../sql/40_outbox/50_templates.sql",
    "40_outbox_55_render" = "../sql/40_outbox/55_render.sql",
    "40_outbox_60_message" = "../sql/40_outbox/60_message.sql",
    "40_outbox_70_own_mail" = "../sql/40_outbox/70_own_mail.sql",
    "40_outbox_75_attachments" = "../sql/40_outbox/75_attachments.sql",
    "40_outbox_80_submit" = "../sql/40_outbox/80_submit.sql",
    "40_outbox_90_send" = "../sql/40_outbox/90_send.sql",
    "40_outbox_95_send_again" = "../sql/40_outbox/95_send_again.sql",
    "50_queue_10_due" = "../sql/50_queue/10_due.sql",
    "50_queue_20_cursors" = "../sql/50_queue/20_cursors.sql",
    "50_queue_30_claimable" = "../sql/50_queue/30_claimable.sql",
    "50_queue_40_look" = "../sql/50_queue/40_look.sql",
    "50_queue_45_batch" = "../sql/50_queue/45_batch.sql",
    "50_queue_50_claim" = "../sql/50_queue/50_claim.sql",
    "50_queue_55_leases" = "../sql/50_queue/55_leases.sql",
    "50_queue_60_groups" = "../sql/50_queue/60_groups.sql",
    "50_queue_70_settle" = "../sql/50_queue/70_settle.sql",
    "50_queue_72_settle_error" = "../sql/50_queue/72_settle_error.sql",
    "50_queue_75_retry" = "../sql/50_queue/75_retry.sql",
    "50_queue_80_budgets" = "../sql/50_queue/80_budgets.sql",
    "50_queue_90_transports" = "../sql/50_queue/90_transports.sql",
    "50_queue_95_reroute" = "../sql/50_queue/95_reroute.sql",
    "50_queue_97_redirect" = "../sql/50_queue/97_redirect.sql",
    "60_worker_10_start" = "../sql/60_worker/10_start.sql",
    "60_worker_20_pause" = "../sql/60_worker/20_pause.sql",
    "60_worker_30_batch" = "../sql/60_worker/30_batch.sql",
    "60_worker_35_status" = "../sql/60_worker/35_status.sql",
    "60_worker_40_waits" = "../sql/60_worker/40_waits.sql",
    "60_worker_45_problems" = "../sql/60_worker/45_problems.sql",
    "60_worker_50_purge" = "../sql/60_worker/50_purge.sql",
    "60_worker_60_copies" = "../sql/60_worker/60_copies.sql",
    "70_events_05_suppress" = "../sql/70_events/05_suppress.sql",
    "70_events_10_record" = "../sql/70_events/10_record.sql",
    "70_events_20_receive" = "../sql/70_events/20_receive.sql",
    "80_dump" = "../sql/80_dump.sql",
    "90_privileges_10_roles" = "../sql/90_privileges/10_roles.sql",
    "90_privileges_20_admin" = "../sql/90_privileges/20_admin.sql",
    "90_privileges_30_app" = "../sql/90_privileges/30_app.sql",
    "90_privileges_40_sender" = "../sql/90_privileges/40_sender.sql",
    "90_privileges_50_collector" = "../sql/90_privileges/50_collector.sql",
    "90_privileges_60_monitor" = "../sql/90_privileges/60_monitor.sql",
    "90_privileges_70_support" = "../sql/90_privileges/70_support.sql",
    "90_privileges_75_receiver" = "../sql/90_privileges/75_receiver.sql",
    "90_privileges_80_definer" = "../sql/90_privileges/80_definer.sql",
    "90_privileges_85_columns" = "../sql/90_privileges/85_columns.sql",
    "90_privileges_90_policies" = "../sql/90_privileges/90_policies.sql",
    "95_key_file" = "../sql/95_key_file.sql",
}
