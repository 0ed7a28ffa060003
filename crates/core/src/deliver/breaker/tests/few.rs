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
fn ten_refusals_of_one_message_pause_the_breaker_unless_others_are_accepted() {
    let mut breaker = CircuitBreaker::new(64);
    for _ in 0..9 {
        let disposal = breaker.record_single(seconds(0), 1, 1, rejects());
        assert_eq!(disposal, Disposition::Settle);
    }
    let mut other = breaker.clone();
    let disposal = breaker.record_single(seconds(0), 1, 1, rejects());
    assert_eq!(disposal, Disposition::Release);
    assert!(paused(&breaker));
    other.record_single(seconds(0), 2, 1, SENT);
    let disposal = other.record_single(seconds(0), 1, 2, rejects());
    assert_eq!(disposal, Disposition::End);
    assert!(!paused(&other));
}

#[test]
fn throttles_are_logged_once_a_minute() {
    for concurrency in [1, 8] {
        let mut breaker = CircuitBreaker::new(concurrency);
        for round in 1..=3_u32 {
            let now = seconds(100 * u64::from(round));
            for id in 0..5 {
                let throttled = MessageOutcome::Throttled {
                    reason: "http 429".to_owned(),
                    after: None,
                };
                breaker.record_single(now, id, 1, throttled);
            }
            assert!(matches!(
                breaker.take_changes()[..],
                [LogEvent::Throttled(..)]
            ));
            for id in 0..100 {
                let later = now + seconds(90);
                breaker.permit(later);
                breaker.record_single(later, id, 2, SENT);
            }
            assert_eq!(
                breaker.take_changes(),
                [LogEvent::Resumed(seconds(90))],
                "{concurrency}, {round}"
            );
        }
    }
}

#[test]
fn an_acceptance_from_before_a_refusal_does_not_end_the_message() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(1);
    breaker.note_request(2);
    let first = breaker.record_single(seconds(0), 7, 2, rejects());
    breaker.record_single(seconds(1), 8, 1, SENT);
    breaker.note_request(3);
    let second = breaker.record_single(seconds(2), 7, 3, rejects());
    assert_eq!([first, second], [Disposition::Settle; 2]);
    breaker.note_request(4);
    breaker.record_single(seconds(3), 9, 4, SENT);
    let third = breaker.record_single(seconds(4), 7, 5, rejects());
    assert_eq!(third, Disposition::End);
}
