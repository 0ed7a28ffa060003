//! I5: no transaction is open during network input and output.

use crate::cluster::{eventually, eventually_or_tell};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver};
use postgres::Client;

/// The open transactions of mailroom's processes, as the server reports them.
fn open_transactions(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT concat_ws(' ', backend_type, 'transaction since', xact_start, 'xid', backend_xid, 'xmin', backend_xmin) \
             FROM pg_stat_activity WHERE backend_type LIKE 'mailroom%' \
             AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Waits until mailroom has no open transaction. A transaction that lasted as long as the requests in flight would last
/// longer than this waits.
fn wait_for_no_transaction(client: &mut Client) {
    eventually_or_tell("a moment without a transaction", || {
        let open = open_transactions(client);
        if open.is_empty() {
            Ok(())
        } else {
            Err(open.join(", "))
        }
    });
}

#[test]
fn i5_no_transaction_is_open_during_network_io() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let settings = ["transport.timeout = '10min'", "mailroom.lease = '1h'"];
    let mut post = Post::start(&receiver, &settings);
    let mut client = post.cluster.connect("app");

    // A transaction of the worker is visible while it waits for a lock.
    let mut holder = post.cluster.connect("app");
    holder.batch_execute("BEGIN; LOCK TABLE outbox").unwrap();
    client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the worker's transaction", || {
        (!open_transactions(&mut client).is_empty()).then_some(())
    });
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_no_transaction(&mut client);

    // The first requests get no response, and later ones join them.
    for requests in 1..=10 {
        post.send(1);
        eventually("the request to be under way", || {
            (receiver.open() == requests).then_some(())
        });
        wait_for_no_transaction(&mut client);
    }
    assert_eq!(post.count("state = 'claimed'"), 10);
    // These get the beginning of a response.
    receiver
        .react(|_| Reaction::Stall(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc".to_vec()));
    for requests in 11..=15 {
        post.send(1);
        eventually("the request to be under way", || {
            (receiver.open() == requests).then_some(())
        });
        wait_for_no_transaction(&mut client);
    }
    assert_eq!(receiver.requests(), 15);
}
