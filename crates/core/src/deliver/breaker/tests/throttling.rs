//! A provider that asks for fewer requests.

use super::super::FIRST_THROTTLE;
use super::*;

#[test]
fn throttling_halves_once_for_all_under_way_and_recovers() {
    let mut breaker = CircuitBreaker::new(64);
    let throttles = || throttle(Some(seconds(3)));
    breaker.note_request(1);
    for id in 0..10 {
        assert_eq!(
            breaker.record_single(seconds(0), id, 1, throttles()),
            Disposition::Release
        );
    }
    assert_eq!(
        breaker.permit(seconds(0)),
        SendPermit::WaitUntil(seconds(3))
    );
    assert_eq!(breaker.permit(seconds(3)), SendPermit::Requests(32));
    for id in 0..32 {
        breaker.record_single(seconds(3), id, 2, SENT);
    }
    assert_eq!(breaker.permit(seconds(3)), SendPermit::Requests(33));
}

#[test]
fn a_message_that_is_throttled_after_each_wait_while_others_are_not_is_charged() {
    let mut breaker = CircuitBreaker::new(64);
    let mut latest = 0;
    let mut send = |id, outcome| {
        latest += 1;
        let now = seconds(60 * latest);
        breaker.permit(now);
        breaker.note_request(latest);
        breaker.record_single(now, id, latest, outcome)
    };
    let throttled = || throttle(None);
    // What was before the first wait shows nothing about the message.
    assert_eq!(send(1, throttled()), Disposition::Release);
    assert_eq!(send(1, throttled()), Disposition::Release);
    assert_eq!(send(2, SENT), Disposition::Settle);
    // This one is not the first after a wait.
    assert_eq!(send(1, throttled()), Disposition::Release);
    assert_eq!(send(1, throttled()), Disposition::Settle);
    // The next one after another message was accepted is charged at once.
    assert_eq!(send(2, SENT), Disposition::Settle);
    assert_eq!(send(1, throttled()), Disposition::Settle);
}

#[test]
fn a_probe_that_is_throttled_is_followed_by_another() {
    let mut breaker = CircuitBreaker::new(64);
    let throttles = || throttle(None);
    let mut now = seconds(0);
    // One that is throttled whenever others go through.
    for request in 1..=5 {
        breaker.record_single(now, 1, request, throttles());
        now += seconds(60);
        breaker.permit(now);
        breaker.record_single(now, 1000 + request as i64, request, SENT);
    }
    breaker.pause(now, "http 500");
    now += seconds(1);
    breaker.note_probe(6);
    assert_eq!(
        breaker.record_single(now, 1, 6, throttles()),
        Disposition::Release
    );
    assert_eq!(breaker.permit(now), SendPermit::WaitUntil(now + seconds(2)));
}

#[test]
fn a_reload_ends_a_wait_and_what_was_sent_before_begins_none() {
    let mut breaker = CircuitBreaker::new(64);
    let throttles = || throttle(Some(seconds(30)));
    breaker.note_request(1);
    breaker.note_request(2);
    breaker.record_single(seconds(0), 1, 1, throttles());
    breaker.reset(seconds(1), 64);
    assert_eq!(breaker.permit(seconds(1)), SendPermit::Requests(64));
    assert_eq!(
        breaker.record_single(seconds(1), 2, 2, throttles()),
        Disposition::Release
    );
    assert_eq!(breaker.permit(seconds(1)), SendPermit::Requests(64));
    breaker.note_request(3);
    breaker.record_single(seconds(1), 3, 3, throttles());
    assert_eq!(
        breaker.permit(seconds(1)),
        SendPermit::WaitUntil(seconds(31))
    );
}

#[test]
fn a_long_wait_is_believed_from_two_messages_told_of_and_probed_each_minute() {
    let mut breaker = CircuitBreaker::new(64);
    let throttles = || throttle(Some(Duration::MAX));
    for request in 1..=3 {
        breaker.note_request(request);
    }
    breaker.record_single(seconds(0), 1, 1, throttles());
    assert_eq!(
        breaker.permit(seconds(0)),
        SendPermit::WaitUntil(FIRST_THROTTLE),
        "one message alone does not delay the others for long"
    );
    let until = FIRST_THROTTLE;
    assert_eq!(
        breaker.take_changes(),
        [LogEvent::Throttled("http 429".to_owned(), until)]
    );
    breaker.record_single(seconds(1), 2, 2, throttles());
    assert_eq!(
        breaker.take_changes(),
        [LogEvent::Paused("http 429".to_owned(), seconds(60))]
    );
    let mut now = seconds(1);
    for request in 4..8 {
        assert_eq!(
            breaker.permit(now),
            SendPermit::WaitUntil(now + seconds(60))
        );
        now += seconds(60);
        assert_eq!(breaker.permit(now), SendPermit::Probe);
        breaker.note_probe(request);
        assert_eq!(
            breaker.record_single(now, request as i64, request, throttles()),
            Disposition::Release
        );
    }
    assert_eq!(breaker.take_changes(), []);
    // Urgent mail has a paused transport tried at once, and a probe that goes through ends the pause.
    breaker.pull_probe(now);
    breaker.note_probe(8);
    breaker.record_single(now, 8, 8, SENT);
    assert_eq!(
        breaker.take_changes(),
        [LogEvent::Resumed(now - seconds(1))]
    );
}

/// A receiver that is down behind its proxy, for example: http 502 of a webhook.
#[test]
fn throttles_of_different_messages_in_a_row_pause_and_are_probed_every_half_minute() {
    let mut breaker = CircuitBreaker::new(64);
    let mut now = seconds(0);
    for request in 1..=8 {
        assert!(matches!(breaker.permit(now), SendPermit::Requests(_)));
        breaker.note_request(request);
        // The requests of one wait count once.
        for id in [1, 2] {
            assert_eq!(
                breaker.record_single(now, id, request, throttle(None)),
                Disposition::Release
            );
        }
        if let SendPermit::WaitUntil(until) = breaker.permit(now) {
            now = until;
        }
    }
    assert!(breaker.is_paused());
    assert!(now < seconds(40), "{now:?}");
    for request in 9..20 {
        assert_eq!(breaker.permit(now), SendPermit::Probe);
        breaker.note_probe(request);
        breaker.record_single(now, request as i64, request, throttle(None));
        let SendPermit::WaitUntil(until) = breaker.permit(now) else {
            panic!("no pause");
        };
        assert!(until <= now + seconds(30));
        now = until;
    }
    // The provider's time is kept.
    breaker.note_probe(20);
    breaker.record_single(now, 20, 20, throttle(Some(seconds(50))));
    // What was sent before shows nothing.
    breaker.record_single(now, 3, 3, throttle(Some(seconds(60))));
    assert_eq!(
        breaker.permit(now),
        SendPermit::WaitUntil(now + seconds(50))
    );
}

#[test]
fn one_message_that_is_throttled_or_an_accepted_one_in_between_pauses_nothing() {
    let mut breaker = CircuitBreaker::new(64);
    for request in 1..=20 {
        let now = seconds(100 * request);
        breaker.permit(now);
        breaker.note_request(request);
        breaker.record_single(now, 1, request, throttle(None));
    }
    assert!(!breaker.is_paused());
    for request in 21..60 {
        let now = seconds(100 * request);
        breaker.permit(now);
        breaker.note_request(request);
        let id = request as i64;
        if request % 7 == 0 {
            breaker.record_single(now, id, request, SENT);
        } else {
            breaker.record_single(now, id, request, throttle(None));
        }
        assert!(!breaker.is_paused(), "{request}");
    }
}

#[test]
fn a_long_wait_after_failures_is_believed_from_two_messages() {
    let mut breaker = CircuitBreaker::new(64);
    let fails = || MessageOutcome::Retry {
        reason: "http 503".to_owned(),
        after: Some(seconds(3600)),
    };
    for request in 1..=2 {
        breaker.note_request(request);
    }
    assert_eq!(
        breaker.record_single(seconds(0), 1, 1, fails()),
        Disposition::Settle
    );
    assert_eq!(breaker.permit(seconds(0)), SendPermit::Requests(64));
    assert_eq!(
        breaker.record_single(seconds(0), 2, 2, fails()),
        Disposition::Release
    );
    assert_eq!(
        breaker.permit(seconds(0)),
        SendPermit::WaitUntil(seconds(60))
    );
}

#[test]
fn urgent_mail_does_not_cut_a_throttle_short() {
    let mut breaker = CircuitBreaker::new(64);
    let asks = throttle(Some(seconds(30)));
    breaker.record_single(seconds(0), 1, 1, asks);
    breaker.pull_probe(seconds(1));
    assert_eq!(
        breaker.permit(seconds(1)),
        SendPermit::WaitUntil(seconds(30))
    );
    // A person who calls mailroom_wake_worker does.
    breaker.retry_now(seconds(2));
    assert_eq!(breaker.permit(seconds(2)), SendPermit::Requests(32));
}
