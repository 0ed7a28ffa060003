//! Whether the memory of a worker that delivers grows with what it has delivered.

use std::time::Duration;

use crate::deliver::start;
use crate::plan::Effort;
use crate::post::Post;
use crate::receiver::{Receiver, status};
use crate::table::{Row, Target, Unit};

/// Lines of /proc/PID/status. What is resident includes the pages of the server's shared memory that this process has
/// looked at so far.
const FIGURES: [(&str, &str, Option<Target>); 3] = [
    ("VmRSS", "resident", None),
    ("RssAnon", "its own", Some(Target::RatioAtMost(1.05))),
    ("RssShmem", "shared with the server", None),
];

/// The rows of memory: all that is resident, and what of it is the worker's own.
pub fn measure(effort: Effort) -> Vec<Row> {
    // The first of them has the worker make what it keeps.
    let few = effort.of(100_000, 500);
    let mut rows = FIGURES.map(|(_, what, target)| {
        let (many, second) = (10 * few, 2 * few);
        let name = format!("worker, {what}, after {many} mails / after {second}");
        Row::new(name, Unit::Kilobytes).aiming_at(target)
    });
    let receiver = Receiver::start(|_| status(200));
    let mut post = start(&receiver.endpoint());
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    let mut sent = 0;
    let mut deliver = |post: &mut Post, count: i64| {
        post.load(count);
        sent += count;
        while (receiver.count() as i64) < sent {
            std::thread::sleep(Duration::from_millis(20));
        }
        post.wait_for("state = 'sent'", count);
        for tidy in ["DELETE FROM outbox WHERE state = 'sent'", "VACUUM outbox"] {
            post.client.batch_execute(tidy).unwrap();
        }
    };
    for _ in 0..2 {
        deliver(&mut post, few);
    }
    let early = FIGURES.map(|(figure, _, _)| post.worker_memory(figure));
    for _ in 2..10 {
        deliver(&mut post, few);
    }
    for ((row, (figure, _, _)), early) in rows.iter_mut().zip(FIGURES).zip(early) {
        row.add(post.worker_memory(figure) as f64, early as f64);
    }
    rows.into()
}
