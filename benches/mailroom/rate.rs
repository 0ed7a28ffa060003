//! The rate of a transport: as much as it says, and never more at once.
//!
//! The worker has more to send than it may. A receiver notes when each request came in: how many in 30 seconds, and
//! over all stretches of time how many more than the rate allows in it, which the burst bounds.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::eventually;
use crate::plan::Effort;
use crate::post::Post;
use crate::receiver::{Receiver, beyond, status};
use crate::table::{Row, Target, Unit};

const RATE: u32 = 100;
/// A second's worth.
const BURST: u32 = 100;

/// The rows of the rate.
pub fn measure(effort: Effort) -> Vec<Row> {
    let seconds: u32 = effort.of(30, 3);
    let name = format!("{RATE}/s for {seconds} s: sent / allowed");
    let mut amount = Row::new(name, Unit::Count)
        .against(f64::from(RATE * seconds))
        .aiming_at(Some(Target::RatioWithin(0.02)));
    let name = "most in any stretch of time beyond the rate / burst";
    let mut excess = Row::new(name, Unit::Count)
        .against(BURST.into())
        .aiming_at(Some(Target::RatioAtMost(1.0)));
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.at);
        status(200)
    });
    let rate = format!("transport.rate = {RATE} messages/s");
    let mut post = Post::start(&receiver, &[&rate]);
    let mails = i64::from(RATE * (seconds + 10));
    post.send(mails);
    // It is at it, and what was left of the burst is spent.
    let before = receiver.count() + BURST as usize;
    eventually("mail to flow", || (receiver.count() > before).then_some(()));
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds.into());
    std::thread::sleep(end - start);
    let mut times: Vec<f64> = arrivals
        .lock()
        .unwrap()
        .iter()
        .filter(|at| (start..end).contains(at))
        .map(|at| at.duration_since(start).as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    amount.add_one(times.len() as f64);
    excess.add_one(beyond(&times, RATE.into()));
    vec![amount, excess]
}
