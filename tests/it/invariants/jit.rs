//! No statement of the extension is compiled by JIT: that takes longer than the statement, and again for each call. A
//! plan that a function forces by `enable_…` has a cost far above `jit_above_cost`, and so have plans in functions that
//! it calls.

use crate::cluster::{Cluster, skip};
use crate::volume::{OPERATIONS, fill, once};

// needs: pg_stat_statements
#[test]
fn no_statement_is_compiled_where_there_is_much() {
    let settings = [
        "shared_preload_libraries = 'mailroom, pg_stat_statements'",
        "pg_stat_statements.track = all",
        "jit = on",
        "autovacuum = off",
    ];
    let (_cluster, mut client) = Cluster::start_with_app(&settings);
    let has_jit: bool = client
        .query_one("SELECT pg_jit_available()", &[])
        .unwrap()
        .get(0);
    if !has_jit {
        return skip("this server compiles no statements");
    }
    client
        .batch_execute("CREATE EXTENSION pg_stat_statements; SELECT mailroom_pause(); SET client_min_messages = error")
        .unwrap();
    // Statements in functions of the application have what ours set.
    let forced: String = client
        .query_one(
            "SELECT coalesce(string_agg(p.proname, ' '), '') FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' \
             WHERE p.proconfig::text LIKE '%enable_%' AND NOT p.proconfig @> '{jit=off}'",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(forced, "");
    fill(&mut client, 5_000);
    client
        .batch_execute("SELECT pg_stat_statements_reset()")
        .unwrap();
    for number in 0..OPERATIONS.len() {
        once(&mut client, number, |client, statement| {
            client.batch_execute(statement)
        });
    }
    client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'other%', 'main'); \
             INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 10000000, 0); \
             SELECT mailroom_send('a@example.com', 'Hello', 'Text', kind => 'other one'); \
             SELECT mailroom_release_many(ARRAY(SELECT id FROM mailroom_claim(10, '1 min', 'me', '{main}')), claimant => 'me')",
        )
        .unwrap();
    let compiled = "SELECT coalesce(string_agg(query, '; '), '') FROM pg_stat_statements WHERE jit_functions > 0";
    let compiled: String = client.query_one(compiled, &[]).unwrap().get(0);
    assert_eq!(compiled, "");
    // A compilation would be reported.
    client
        .batch_execute("SET jit_above_cost = 0; SELECT count(*) FROM outbox WHERE send_at < now()")
        .unwrap();
    let told: i64 = client
        .query_one(
            "SELECT count(*) FROM pg_stat_statements WHERE jit_functions > 0",
            &[],
        )
        .unwrap()
        .get(0);
    assert!(told > 0);
}
