//! What CREATE EXTENSION runs: the files of `sql/`, each after the one before.

use pgrx::prelude::*;

extension_sql_file!("../sql/05_library.sql", name = "library", bootstrap);
extension_sql_file!(
    "../sql/10_accounts/10_accounts.sql",
    name = "accounts",
    requires = ["library"]
);
extension_sql_file!(
    "../sql/20_tokens/10_tokens.sql",
    name = "tokens",
    requires = ["accounts"]
);
extension_sql_file!(
    "../sql/30_pending/10_pending.sql",
    name = "pending",
    requires = ["tokens"]
);
extension_sql_file!(
    "../sql/40_outbox/10_outbox.sql",
    name = "outbox",
    requires = ["pending"]
);
extension_sql_file!(
    "../sql/50_queue/10_due.sql",
    name = "due",
    requires = ["outbox"]
);
extension_sql_file!(
    "../sql/40_outbox/40_routes.sql",
    name = "routes",
    requires = ["due"]
);
extension_sql_file!(
    "../sql/40_outbox/50_templates.sql",
    name = "templates",
    requires = ["routes"]
);
extension_sql_file!(
    "../sql/40_outbox/80_send.sql",
    name = "send",
    requires = ["templates"]
);
extension_sql_file!(
    "../sql/50_queue/40_select_due.sql",
    name = "gather",
    requires = ["send"]
);
extension_sql_file!(
    "../sql/50_queue/50_claim.sql",
    name = "claim",
    requires = ["gather"]
);
extension_sql_file!(
    "../sql/50_queue/70_settle.sql",
    name = "settle",
    requires = ["claim"]
);
extension_sql_file!(
    "../sql/50_queue/60_groups.sql",
    name = "groups",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/60_worker/10_worker.sql",
    name = "deliver",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/50_queue/90_transports.sql",
    name = "transports",
    requires = ["deliver"]
);
extension_sql_file!(
    "../sql/30_pending/20_dequeue.sql",
    name = "handout",
    requires = ["transports"]
);
extension_sql_file!(
    "../sql/50_queue/80_budgets.sql",
    name = "budgets",
    requires = ["handout"]
);
extension_sql_file!(
    "../sql/60_worker/20_batch.sql",
    name = "worker",
    requires = ["budgets"]
);
extension_sql_file!(
    "../sql/60_worker/40_waits.sql",
    name = "waits",
    requires = ["worker"]
);
extension_sql_file!(
    "../sql/60_worker/50_purge.sql",
    name = "purge",
    requires = ["waits"]
);
extension_sql_file!(
    "../sql/20_tokens/60_redeem.sql",
    name = "redeem",
    requires = ["purge"]
);
extension_sql_file!(
    "../sql/20_tokens/70_requests.sql",
    name = "requests",
    requires = ["redeem"]
);
extension_sql_file!(
    "../sql/60_worker/60_copies.sql",
    name = "home",
    requires = ["requests"]
);
extension_sql_file!(
    "../sql/10_accounts/20_attached.sql",
    name = "own_table",
    requires = ["home"]
);
extension_sql_file!(
    "../sql/80_dump.sql",
    name = "dump",
    requires = ["own_table"]
);
extension_sql_file!(
    "../sql/90_privileges/10_roles.sql",
    name = "privileges",
    finalize,
    requires = ["dump"]
);
