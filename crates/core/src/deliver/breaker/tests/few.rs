//! Where few messages fail or are refused, again and again.

use super::*;

#[test]
fn a_few_messages_that_fail_again_and_again_pause_the_breaker() {
    let mut breaker = CircuitBreaker::new(64);
    let fails = || failure("http 503");
    for round in 0..5 {
        for id in 1..=3 {
            assert_eq!(
                breaker.record_single(seconds(round), id, 1, fails()),
                Disposition::Settle
            );
        }
    }
    assert_eq!(
        breaker.record_single(seconds(5), 1, 1, fails()),
        Disposition::Release
    );
    assert!(paused(&breaker));
}

#[test]
fn a_probe_that_fails_costs_no_attempt_and_another_message_is_the_next() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.pause(seconds(0), "http 503");
    for id in 1..=3 {
        assert!(!breaker.is_suspect(id));
        breaker.note_probe(id as u64);
        let fails = failure("http 503");
        assert_eq!(
            breaker.record_single(seconds(0), id, id as u64, fails),
            Disposition::Release
        );
        assert!(breaker.is_suspect(id));
    }
    // What may have been sent counts.
    breaker.note_probe(4);
    let silent = MessageOutcome::Ambiguous {
        reason: "timeout".to_owned(),
    };
    assert_eq!(
        breaker.record_single(seconds(0), 4, 4, silent),
        Disposition::Settle
    );
    breaker.note_probe(5);
    breaker.record_single(seconds(0), 5, 5, SENT);
    assert!((1..=5).all(|id| !breaker.is_suspect(id)));
}

#[test]
fn three_messages_refused_ten_times_pause_the_breaker_and_two_do_not() {
    let mut breaker = CircuitBreaker::new(64);
    for turn in 0..100 {
        let disposal = breaker.record_single(seconds(0), turn % 2, 1, rejects());
        assert_eq!(disposal, Disposition::Settle);
    }
    let disposal = breaker.record_single(seconds(0), 2, 1, rejects());
    assert_eq!(disposal, Disposition::Release);
    assert!(paused(&breaker));
}
