//! Requests with several messages.

use super::*;

#[test]
fn one_answer_to_many_is_one_piece_of_evidence() {
    let mut breaker = CircuitBreaker::new(64);
    let fails = || failure("http 503");
    for id in 0..500 {
        let disposal = breaker.record_in_batch(seconds(0), id, 0, 1, fails());
        assert_eq!(disposal, Disposition::Settle);
    }
    for id in 0..500 {
        let disposal = breaker.record_in_batch(seconds(0), id, 0, 1, refuses());
        assert_eq!(disposal, Disposition::Release);
    }
    assert!(!paused(&breaker));
    // Sixteen of them are enough, as ever.
    for batch in 1..=15 {
        assert!(!paused(&breaker));
        for id in 0..500 {
            breaker.record_in_batch(seconds(0), batch * 1000 + id, batch * 1000, 1, fails());
        }
    }
    assert!(paused(&breaker));
}

#[test]
fn one_batch_that_goes_through_widens_the_window_by_one_request() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.record_single(seconds(0), 1, 1, throttle(None));
    let SendPermit::WaitUntil(until) = breaker.permit(seconds(0)) else {
        panic!("a pause");
    };
    assert_eq!(breaker.permit(until), SendPermit::Requests(32));
    for batch in 0..32 {
        assert_eq!(breaker.permit(until), SendPermit::Requests(32));
        for id in 0..500 {
            breaker.record_in_batch(until, batch * 1000 + id, batch * 1000, 2, SENT);
        }
    }
    assert_eq!(breaker.permit(until), SendPermit::Requests(33));
}

#[test]
fn messages_that_one_answer_refuses_for_their_contents_count_each() {
    let mut breaker = CircuitBreaker::new(64);
    for id in 0..9 {
        let disposal = breaker.record_in_batch(seconds(0), id, 0, 1, rejects());
        assert_eq!(disposal, Disposition::Settle);
    }
    assert!(!paused(&breaker));
    for id in 9..500 {
        let disposal = breaker.record_in_batch(seconds(0), id, 0, 1, rejects());
        assert_eq!(disposal, Disposition::Release, "none is lost");
    }
    assert!(paused(&breaker));
}
