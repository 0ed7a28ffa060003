//! What mailroom_problems says of a worker.

use postgres::Client;

use super::insert_accounts;
use crate::cluster::{Cluster, eventually};

fn problems(client: &mut Client) -> Vec<String> {
    let rows = client.query("SELECT problem FROM mailroom_problems()", &[]);
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_worker_that_fails_is_a_problem_until_it_recovers() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    assert_eq!(problems(&mut client), Vec::<String>::new());
    client
        .batch_execute("REVOKE SELECT ON pending FROM mailroom_collector")
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    eventually("the problem", || {
        (problems(&mut client) == ["worker_errors"]).then_some(())
    });
    client
        .batch_execute(
            "GRANT SELECT ON pending TO mailroom_collector; SELECT mailroom_wake_worker()",
        )
        .unwrap();
    eventually("no problem", || {
        problems(&mut client).is_empty().then_some(())
    });
}
