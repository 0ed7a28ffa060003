//! What CREATE EXTENSION runs: the files of `sql/`, each after the one before.

use pgrx::prelude::*;

extension_sql_file!("../sql/05_library.sql", name = "library", bootstrap);
extension_sql_file!(
    "../sql/10_accounts.sql",
    name = "accounts",
    requires = ["library"]
);
extension_sql_file!(
    "../sql/20_tokens.sql",
    name = "tokens",
    requires = ["accounts"]
);
extension_sql_file!(
    "../sql/30_pending.sql",
    name = "pending",
    requires = ["tokens"]
);
extension_sql_file!(
    "../sql/40_outbox.sql",
    name = "outbox",
    requires = ["pending"]
);
extension_sql_file!("../sql/41_due.sql", name = "due", requires = ["outbox"]);
extension_sql_file!("../sql/42_routes.sql", name = "routes", requires = ["due"]);
extension_sql_file!(
    "../sql/42_templates.sql",
    name = "templates",
    requires = ["routes"]
);
extension_sql_file!(
    "../sql/43_send.sql",
    name = "send",
    requires = ["templates"]
);
extension_sql_file!("../sql/44_gather.sql", name = "gather", requires = ["send"]);
extension_sql_file!("../sql/45_claim.sql", name = "claim", requires = ["gather"]);
extension_sql_file!(
    "../sql/46_settle.sql",
    name = "settle",
    requires = ["claim"]
);
extension_sql_file!(
    "../sql/47_groups.sql",
    name = "groups",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/48_deliver.sql",
    name = "deliver",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/49_transports.sql",
    name = "transports",
    requires = ["deliver"]
);
extension_sql_file!(
    "../sql/50_handout.sql",
    name = "handout",
    requires = ["transports"]
);
extension_sql_file!(
    "../sql/55_budgets.sql",
    name = "budgets",
    requires = ["handout"]
);
extension_sql_file!(
    "../sql/60_worker.sql",
    name = "worker",
    requires = ["budgets"]
);
extension_sql_file!("../sql/62_waits.sql", name = "waits", requires = ["worker"]);
extension_sql_file!("../sql/65_purge.sql", name = "purge", requires = ["waits"]);
extension_sql_file!(
    "../sql/70_redeem.sql",
    name = "redeem",
    requires = ["purge"]
);
extension_sql_file!(
    "../sql/72_requests.sql",
    name = "requests",
    requires = ["redeem"]
);
extension_sql_file!("../sql/74_home.sql", name = "home", requires = ["requests"]);
extension_sql_file!(
    "../sql/76_own_table.sql",
    name = "own_table",
    requires = ["home"]
);
extension_sql_file!(
    "../sql/80_dump.sql",
    name = "dump",
    requires = ["own_table"]
);
extension_sql_file!(
    "../sql/90_privileges.sql",
    name = "privileges",
    finalize,
    requires = ["dump"]
);
