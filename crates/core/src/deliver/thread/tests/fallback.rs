use std::time::Duration;

use super::world::{Receiver, TestRunner, file};

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
        runner.fallback_after = Duration::from_secs(1);
        // The file is read before a probe, and that takes longer than a claim of the other transport.
        runner.is_slow_to_configure = true;
        runner.schedule("primary", 1);
        for second in 1..60 {
            if second == 3 {
                primary.answer(200);
            }
            runner.pass(Duration::from_millis(500));
            runner.configure_if_asked();
            runner.pass(Duration::from_millis(500));
            if runner.sent("primary") > 0 {
                break;
            }
            runner.schedule("primary", 2);
        }
        assert!(runner.sent("primary") > 0, "{:?}", runner.state("primary"));
        assert!(runner.sent("backup") > 0);
    }
}
