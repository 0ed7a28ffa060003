//! Rates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::Halts;
use crate::post::Post;
use crate::receiver::{Receiver, beyond, status};

#[test]
fn a_rate_is_kept_over_any_stretch_of_time() {
    const RATE: f64 = 100.0;
    // What the rate allows in a second.
    const BURST: f64 = 100.0;
    const EACH: i64 = 240;
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.at);
        status(200)
    });
    let mut post = Post::start(&receiver, &["transport.rate = 100 messages/s"]);
    let halts = Halts::watch();
    let start = Instant::now();
    let mut sent = 0;
    // The second load follows a time without mail, in which no more than the burst may accumulate.
    for _ in 0..2 {
        post.send(EACH);
        sent += EACH;
        post.wait_until_ended(sent);
        std::thread::sleep(Duration::from_secs(2));
    }
    let mut arrivals: Vec<f64> = arrivals
        .lock()
        .unwrap()
        .iter()
        .map(|at: &Instant| at.duration_since(start).as_secs_f64())
        .collect();
    arrivals.sort_by(f64::total_cmp);
    assert_eq!(arrivals.len() as i64, sent);
    // A request that the machine delayed arrives together with those after it.
    let late = halts.longest().as_secs_f64() + 0.1;
    let most = beyond(&arrivals, RATE);
    assert!(
        most <= BURST + RATE * late,
        "{most} more than the rate allows arrived in a stretch of time; some may have been {late} s late"
    );
}

#[test]
fn a_new_rate_is_in_force_without_a_restart() {
    let receiver = Receiver::start(|_| status(200));
    // At this rate 200 messages take longer than the test waits.
    let mut post = Post::start(&receiver, &["transport.rate = 1 messages/s"]);
    post.send(200);
    post.wait_for("state = 'sent'", 1);
    assert!(post.count("state = 'sent'") < 200);
    post.transports.remove("rate");
    post.transports.write(&post.cluster);
    post.cluster.reload();
    post.wait_for("state = 'sent'", 200);
}
