//! A provider that asks for fewer requests.

use super::*;

#[test]
fn throttling_halves_once_for_all_under_way_and_recovers() {
    let mut breaker = Breaker::new(64);
    let throttles = || Sign::Throttles("http 429".to_owned(), Some(seconds(3)));
    for id in 0..10 {
        assert_eq!(
            breaker.judge(seconds(0), id, 1, throttles()),
            Disposal::Release
        );
    }
    assert_eq!(breaker.permit(seconds(0)), Permit::Nothing(seconds(3)));
    assert_eq!(breaker.permit(seconds(3)), Permit::Requests(32));
    for id in 0..32 {
        breaker.judge(seconds(3), id, 2, Sign::Works);
    }
    assert_eq!(breaker.permit(seconds(3)), Permit::Requests(33));
}

#[test]
fn a_message_throttled_again_and_again_while_others_are_not_is_charged() {
    let mut breaker = Breaker::new(64);
    let mut now = seconds(0);
    let mut charged = 0;
    for request in 1..=10 {
        let sign = Sign::Throttles("http 429".to_owned(), None);
        charged += usize::from(breaker.judge(now, 1, request, sign) == Disposal::Charge);
        now += seconds(60);
        breaker.permit(now);
        breaker.judge(now, 1000 + request as i64, request, Sign::Works);
    }
    assert_eq!(charged, 6);
}

#[test]
fn a_probe_that_is_throttled_is_followed_by_another() {
    let mut breaker = Breaker::new(64);
    let throttles = || Sign::Throttles("http 429".to_owned(), None);
    let mut now = seconds(0);
    // One that is throttled whenever others go through.
    for request in 1..=5 {
        breaker.judge(now, 1, request, throttles());
        now += seconds(60);
        breaker.permit(now);
        breaker.judge(now, 1000 + request as i64, request, Sign::Works);
    }
    breaker.pause(now, "http 500");
    now += seconds(1);
    breaker.note_probe(6);
    assert_eq!(breaker.judge(now, 1, 6, throttles()), Disposal::Release);
    assert_eq!(breaker.permit(now), Permit::Nothing(now + seconds(2)));
}

#[test]
fn a_reload_ends_a_wait_and_what_was_sent_before_begins_none() {
    let mut breaker = Breaker::new(64);
    let throttles = || Sign::Throttles("http 429".to_owned(), Some(seconds(30)));
    breaker.note_request(1);
    breaker.note_request(2);
    breaker.judge(seconds(0), 1, 1, throttles());
    breaker.reset(seconds(1), 64);
    assert_eq!(breaker.permit(seconds(1)), Permit::Requests(64));
    assert_eq!(
        breaker.judge(seconds(1), 2, 2, throttles()),
        Disposal::Release
    );
    assert_eq!(breaker.permit(seconds(1)), Permit::Requests(64));
    breaker.note_request(3);
    breaker.judge(seconds(1), 3, 3, throttles());
    assert_eq!(breaker.permit(seconds(1)), Permit::Nothing(seconds(31)));
}

#[test]
fn a_long_wait_is_believed_from_two_messages_told_of_and_probed_each_minute() {
    let mut breaker = Breaker::new(64);
    let throttles = || Sign::Throttles("http 429".to_owned(), Some(Duration::MAX));
    for request in 1..=3 {
        breaker.note_request(request);
    }
    breaker.judge(seconds(0), 1, 1, throttles());
    assert_eq!(
        breaker.permit(seconds(0)),
        Permit::Nothing(FIRST_BREATH),
        "one message alone holds up nobody for long"
    );
    let until = FIRST_BREATH;
    assert_eq!(
        breaker.take_news(),
        [News::Throttled("http 429".to_owned(), until)]
    );
    breaker.judge(seconds(1), 2, 2, throttles());
    assert_eq!(
        breaker.take_news(),
        [News::Paused("http 429".to_owned(), seconds(61))]
    );
    let mut now = seconds(1);
    for request in 4..8 {
        assert_eq!(breaker.permit(now), Permit::Nothing(now + seconds(60)));
        now += seconds(60);
        assert_eq!(breaker.permit(now), Permit::Probe);
        breaker.note_probe(request);
        assert_eq!(
            breaker.judge(now, request as i64, request, throttles()),
            Disposal::Release
        );
    }
    assert_eq!(breaker.take_news(), []);
    // Urgent mail has it tried at once, and a probe that goes through ends it.
    breaker.pull(now);
    breaker.note_probe(8);
    breaker.judge(now, 8, 8, Sign::Works);
    assert_eq!(breaker.take_news(), [News::Resumed(now - seconds(1))]);
}
