//! Which refused mailboxes count against their addresses.

use super::*;

/// Sends a request with one message, of which the server says this.
fn ended(breaker: &mut CircuitBreaker, request: u64, outcome: MessageOutcome) {
    breaker.note_request(request);
    breaker.record_single(seconds(0), request as i64, request, outcome);
}

/// Whether the refusal of a mailbox in this request counts against it.
fn blamed(breaker: &mut CircuitBreaker, request: u64) -> bool {
    let refused = MessageOutcome::RecipientRefused {
        reason: "smtp 550 5.1.1".to_owned(),
        is_permanent: true,
    };
    ended(breaker, request, refused);
    breaker.blames_mailbox(request)
}

#[test]
fn a_server_that_has_accepted_nothing_shows_nothing_about_a_mailbox() {
    let mut breaker = CircuitBreaker::new(4);
    assert!((1..=1000).all(|request| !blamed(&mut breaker, request)));
    ended(&mut breaker, 1001, SENT);
    assert!(blamed(&mut breaker, 1002));
}

#[test]
fn a_server_that_begins_to_refuse_everyone_is_believed_a_few_times_only() {
    let mut breaker = CircuitBreaker::new(4);
    ended(&mut breaker, 1, SENT);
    let count = (2..=1000)
        .filter(|request| blamed(&mut breaker, *request))
        .count();
    assert_eq!(count, MAX_MAILBOXES);
    ended(&mut breaker, 1001, SENT);
    assert!(blamed(&mut breaker, 1002));
}

#[test]
fn what_was_accepted_before_a_pause_or_a_change_counts_no_more() {
    let mut breaker = CircuitBreaker::new(4);
    ended(&mut breaker, 1, SENT);
    breaker.reset(seconds(1), 4);
    assert!(!blamed(&mut breaker, 2));
    ended(&mut breaker, 3, SENT);
    assert!(blamed(&mut breaker, 4));
    for request in 5..10 {
        ended(&mut breaker, request, refuses());
    }
    assert!(paused(&breaker) && !blamed(&mut breaker, 10));
    breaker.note_probe(11);
    breaker.record_single(seconds(2), 11, 11, SENT);
    assert!(!paused(&breaker));
    // A refusal in a request from before the pause.
    assert!(!blamed(&mut breaker, 4));
    assert!(blamed(&mut breaker, 12));
}
