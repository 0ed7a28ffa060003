use std::time::Duration;

use super::world::{Receiver, TestRunner, file};
use crate::deliver::thread::Exchange;

/// Moves mail of paused transports to the one that claims, as the database does.
fn fall_back(runner: &mut TestRunner, exchange: &Exchange) {
    let Some(limit) = exchange.claim else {
        return;
    };
    let mut moved = Vec::new();
    for (from, since) in &exchange.paused {
        if *since >= Duration::from_secs(1) {
            let waiting = runner.waiting.entry(from.to_string()).or_default();
            let count = waiting.len().min(limit.mails as usize - moved.len());
            moved.extend(waiting.drain(..count));
        }
    }
    let to = exchange.transport.to_string();
    runner.waiting.entry(to).or_default().extend(moved);
}

/// A transport without mail would never be found to work again.
#[test]
fn what_falls_back_leaves_a_paused_transport_mail_for_its_probes() {
    for is_first in [true, false] {
        let (primary, backup) = (Receiver::start(410), Receiver::start(200));
        let mut names = [
            ("primary", primary.address, ""),
            ("backup", backup.address, ""),
        ];
        if !is_first {
            names.reverse();
        }
        let mut runner = TestRunner::new(file(&names));
        runner.schedule("primary", 1);
        let began = std::time::Instant::now();
        let mut seconds = 0;
        while runner.sent("primary") == 0 {
            if began.elapsed().as_secs() > seconds {
                seconds += 1;
                runner.schedule("primary", 2);
            }
            if seconds >= 3 {
                primary.answer(200);
            }
            assert!(seconds < 60, "it stays {:?}", runner.state("primary"));
            for exchange in runner.exchanges() {
                fall_back(&mut runner, &exchange);
                runner.exchange(exchange);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(runner.sent("backup") > 0);
    }
}
