//! Tests of the circuit breaker, with a clock of their own.

use super::*;
use crate::transport::providers::MessageOutcome;

mod batches;
mod few;
mod mailboxes;
mod throttling;

const SENT: MessageOutcome = MessageOutcome::Sent { provider_id: None };

impl CircuitBreaker {
    /// A healthy transport with this number of concurrent requests.
    fn new(max_concurrency: usize) -> Self {
        Self {
            max_concurrency,
            concurrency: max_concurrency,
            ..Self::default()
        }
    }

    /// Records the result of a message of a batch.
    fn record_in_batch(
        &mut self,
        now: Time,
        id: i64,
        leader: i64,
        request: u64,
        outcome: MessageOutcome,
    ) -> Disposition {
        let origin = Origin {
            id,
            leader,
            request,
            is_single: id == leader,
            is_beside_accepted: false,
        };
        self.record(now, origin, &outcome)
    }

    /// Records the result of a request with this message only.
    fn record_single(
        &mut self,
        now: Time,
        id: i64,
        request: u64,
        outcome: MessageOutcome,
    ) -> Disposition {
        self.record_in_batch(now, id, id, request, outcome)
    }
}

const fn seconds(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn refuses() -> MessageOutcome {
    MessageOutcome::AccountRefused {
        reason: "http 401".to_owned(),
    }
}

fn failure(reason: &str) -> MessageOutcome {
    MessageOutcome::Retry {
        reason: reason.to_owned(),
        after: None,
    }
}

fn throttle(after: Option<Duration>) -> MessageOutcome {
    MessageOutcome::Throttled {
        reason: "http 429".to_owned(),
        after,
    }
}

fn paused(breaker: &CircuitBreaker) -> bool {
    breaker.status().0 == "paused"
}

#[test]
fn different_messages_pause_the_breaker_and_lose_no_attempt() {
    let mut breaker = CircuitBreaker::new(64);
    for id in 1..=5 {
        breaker.note_request(id as u64);
        assert_eq!(
            breaker.record_single(seconds(0), id, id as u64, refuses()),
            Disposition::Release
        );
        assert_eq!(paused(&breaker), id == 5);
    }
    assert_eq!(
        breaker.take_changes(),
        [LogEvent::Paused("http 401".to_owned(), seconds(1))]
    );
    assert_eq!(
        breaker.permit(seconds(0)),
        SendPermit::WaitUntil(seconds(1))
    );
    assert_eq!(breaker.permit(seconds(1)), SendPermit::Probe);
}

#[test]
fn one_message_does_not_when_others_go_through() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(1);
    assert_eq!(
        breaker.record_single(seconds(0), 7, 1, refuses()),
        Disposition::Release
    );
    assert!(breaker.has_open_refusals());
    // In flight since before: tells nothing.
    breaker.record_single(seconds(0), 8, 1, SENT);
    assert!(breaker.has_open_refusals());
    breaker.note_request(2);
    breaker.record_single(seconds(0), 9, 2, SENT);
    assert!(!breaker.has_open_refusals());
    // And from now on it is known.
    assert_eq!(
        breaker.record_single(seconds(1), 7, 2, refuses()),
        Disposition::Settle
    );
    assert!(!paused(&breaker));
    assert_eq!(breaker.take_changes(), []);
}

#[test]
fn alone_it_does_until_another_one_goes_through() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(1);
    breaker.record_single(seconds(0), 7, 1, refuses());
    breaker.attribute_refusals(seconds(0));
    assert!(paused(&breaker));
    assert_eq!(breaker.permit(seconds(1)), SendPermit::Probe);
    assert!(breaker.is_suspect(7));
    breaker.note_probe(2);
    assert_eq!(breaker.permit(seconds(1)), SendPermit::ProbeInFlight);
    assert_eq!(
        breaker.record_single(seconds(2), 8, 2, SENT),
        Disposition::Settle
    );
    assert!(!paused(&breaker));
    assert_eq!(
        breaker.take_changes().last(),
        Some(&LogEvent::Resumed(seconds(2)))
    );
    assert_eq!(
        breaker.record_single(seconds(2), 7, 3, refuses()),
        Disposition::Settle
    );
}

#[test]
fn probes_of_a_provider_that_refuses_back_off_up_to_a_minute() {
    let mut breaker = CircuitBreaker::new(64);
    for id in 1..=5 {
        breaker.record_single(seconds(0), id, 1, refuses());
    }
    let (pauses, now) = pauses_before(&mut breaker, 6..18);
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]);
    assert_eq!(breaker.take_changes().len(), 1, "the log hears of it once");
    breaker.retry_now(now);
    assert_eq!(breaker.permit(now), SendPermit::Probe);
}

#[test]
fn it_is_no_matter_of_a_few_once_a_fifth_message_is_refused() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.record_single(seconds(0), 1, 1, refuses());
    breaker.attribute_refusals(seconds(0));
    let (pauses, _) = pauses_before(&mut breaker, [1, 1, 1, 1, 1, 2, 3, 4, 5, 6]);
    assert_eq!(pauses, [1, 2, 4, 8, 10, 10, 10, 10, 10, 60]);
}

/// How long a paused breaker waits before each of these probes, which are all refused, and when the last one was.
fn pauses_before(
    breaker: &mut CircuitBreaker,
    probes: impl IntoIterator<Item = i64>,
) -> (Vec<u64>, Time) {
    let mut now = seconds(0);
    let mut pauses = Vec::new();
    for (request, id) in (2..).zip(probes) {
        let SendPermit::WaitUntil(until) = breaker.permit(now) else {
            panic!("a pause");
        };
        pauses.push((until - now).as_secs());
        now = until;
        assert_eq!(breaker.permit(now), SendPermit::Probe);
        breaker.note_probe(request);
        assert_eq!(
            breaker.record_single(now, id, request, refuses()),
            Disposition::Release
        );
    }
    (pauses, now)
}

#[test]
fn one_refused_message_delays_the_others_briefly() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.record_single(seconds(0), 7, 1, refuses());
    breaker.attribute_refusals(seconds(0));
    let mut now = seconds(0);
    for request in 2..20 {
        let SendPermit::WaitUntil(until) = breaker.permit(now) else {
            panic!("a pause");
        };
        assert!(until - now <= LONGEST_UNCERTAIN_PAUSE);
        now = until;
        assert_eq!(breaker.permit(now), SendPermit::Probe);
        breaker.note_probe(request);
        breaker.record_single(now, 7, request, refuses());
    }
}

#[test]
fn what_was_under_way_before_the_pause_does_not_end_it() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(3);
    breaker.pause(seconds(0), "http 401");
    assert_eq!(
        breaker.record_single(seconds(0), 1, 3, SENT),
        Disposition::Settle
    );
    assert!(paused(&breaker));
}

#[test]
fn a_late_refusal_of_what_was_sent_before_the_pause_costs_no_attempt() {
    let mut breaker = CircuitBreaker::new(64);
    for id in 1..=6 {
        breaker.note_request(id as u64);
    }
    for id in 1..=5 {
        breaker.record_single(seconds(0), id, id as u64, refuses());
    }
    assert!(paused(&breaker));
    breaker.retry_now(seconds(0));
    breaker.note_probe(7);
    breaker.record_single(seconds(0), 7, 7, SENT);
    assert!(!paused(&breaker));
    assert_eq!(
        breaker.record_single(seconds(1), 6, 6, refuses()),
        Disposition::Release
    );
    breaker.note_request(8);
    breaker.record_single(seconds(1), 8, 8, SENT);
    // With the credentials of now it is a matter of its own.
    assert_eq!(
        breaker.record_single(seconds(1), 6, 8, refuses()),
        Disposition::Release
    );
}

#[test]
fn what_was_refused_with_the_settings_of_before_costs_no_attempt() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(1);
    breaker.note_request(2);
    assert_eq!(
        breaker.record_single(seconds(0), 1, 1, refuses()),
        Disposition::Release
    );
    breaker.reset(seconds(0), 64);
    assert_eq!(
        breaker.record_single(seconds(0), 2, 2, refuses()),
        Disposition::Release
    );
    // Nor do the two count towards a pause.
    for id in 3..=6 {
        breaker.note_request(id as u64);
        breaker.record_single(seconds(0), id, id as u64, refuses());
        assert!(!paused(&breaker));
    }
}

#[test]
fn an_endpoint_that_is_away_costs_few_attempts() {
    let mut breaker = CircuitBreaker::new(64);
    let unreached = || MessageOutcome::NoConnection {
        reason: "no connection".to_owned(),
    };
    // One message is enough: whether the endpoint can be reached does not depend on it.
    for _ in 0..2 {
        assert_eq!(
            breaker.record_single(seconds(0), 1, 1, unreached()),
            Disposition::Settle
        );
    }
    for id in 1..=2 {
        assert_eq!(
            breaker.record_single(seconds(0), id, 1, unreached()),
            Disposition::Release
        );
        assert!(paused(&breaker));
    }
}

#[test]
fn what_had_no_answer_before_a_reload_does_not_pause_the_breaker_after_it() {
    let mut breaker = CircuitBreaker::new(64);
    breaker.note_request(1);
    breaker.note_request(2);
    let fails = || failure("timeout");
    for id in 0..10 {
        breaker.record_single(seconds(0), id, 1, fails());
    }
    breaker.reset(seconds(1), 64);
    for id in 10..100 {
        assert_eq!(
            breaker.record_single(seconds(2), id, 2, fails()),
            Disposition::Settle
        );
    }
    breaker.note_request(3);
    for id in 100..115 {
        breaker.record_single(seconds(3), id, 3, fails());
        assert!(!paused(&breaker));
    }
    breaker.record_single(seconds(3), 115, 3, fails());
    assert!(paused(&breaker));
}

#[test]
fn one_that_always_fails_never_holds_the_breaker() {
    let mut breaker = CircuitBreaker::new(64);
    for _ in 0..1000 {
        let sign = failure("http 500");
        assert_eq!(
            breaker.record_single(seconds(0), 1, 1, sign),
            Disposition::Settle
        );
    }
    assert!(!paused(&breaker));
}

fn rejects() -> MessageOutcome {
    MessageOutcome::Refused {
        reason: "http 400".to_owned(),
    }
}

#[test]
fn ten_different_messages_refused_in_a_row_pause_the_breaker_and_none_ends() {
    let mut breaker = CircuitBreaker::new(64);
    for id in 1..10 {
        let disposal = breaker.record_single(seconds(0), id, 1, rejects());
        assert_eq!(disposal, Disposition::Settle);
    }
    assert_eq!(
        breaker.record_single(seconds(0), 10, 1, rejects()),
        Disposition::Release
    );
    assert_eq!(
        breaker.take_changes(),
        [LogEvent::Paused("http 400".to_owned(), seconds(1))]
    );
    let mut now = seconds(0);
    for (step, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        assert_eq!(
            breaker.permit(now),
            SendPermit::WaitUntil(now + seconds(pause))
        );
        now += seconds(pause);
        breaker.note_probe(2 + step as u64);
        let disposal = breaker.record_single(now, 11 + step as i64, 2 + step as u64, rejects());
        assert_eq!(disposal, Disposition::Release);
    }
    assert_eq!(breaker.take_changes(), []);
}

#[test]
fn a_message_that_is_refused_again_after_another_was_taken_ends() {
    let mut breaker = CircuitBreaker::new(64);
    assert_eq!(
        breaker.record_single(seconds(0), 7, 1, rejects()),
        Disposition::Settle
    );
    breaker.record_single(seconds(0), 8, 1, SENT);
    assert_eq!(
        breaker.record_single(seconds(1), 7, 2, rejects()),
        Disposition::End
    );
    // Nine more are no ten in a row.
    for id in 10..19 {
        breaker.record_single(seconds(1), id, 2, rejects());
    }
    assert!(!paused(&breaker));
}
