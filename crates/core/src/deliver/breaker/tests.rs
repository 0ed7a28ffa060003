//! Tests of the circuit breaker, with a clock of their own.

use super::*;

mod throttling;

const fn seconds(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn refuses() -> Sign {
    Sign::Refuses("http 401".to_owned())
}

fn paused(breaker: &Breaker) -> bool {
    breaker.tell().0 == "paused"
}

#[test]
fn different_messages_pause_the_breaker_and_lose_no_attempt() {
    let mut breaker = Breaker::new(64);
    for id in 1..=5 {
        breaker.note_request(id as u64);
        assert_eq!(
            breaker.judge(seconds(0), id, id as u64, refuses()),
            Disposal::Release
        );
        assert_eq!(paused(&breaker), id == 5);
    }
    assert_eq!(
        breaker.take_news(),
        [News::Paused("http 401".to_owned(), seconds(1))]
    );
    assert_eq!(breaker.permit(seconds(0)), Permit::Nothing(seconds(1)));
    assert_eq!(breaker.permit(seconds(1)), Permit::Probe);
}

#[test]
fn one_message_does_not_when_others_go_through() {
    let mut breaker = Breaker::new(64);
    breaker.note_request(1);
    assert_eq!(
        breaker.judge(seconds(0), 7, 1, refuses()),
        Disposal::Release
    );
    assert!(breaker.is_doubtful());
    // In flight since before: tells nothing.
    breaker.judge(seconds(0), 8, 1, Sign::Works);
    assert!(breaker.is_doubtful());
    breaker.note_request(2);
    breaker.judge(seconds(0), 9, 2, Sign::Works);
    assert!(!breaker.is_doubtful());
    // And from now on it is known.
    assert_eq!(breaker.judge(seconds(1), 7, 2, refuses()), Disposal::Charge);
    assert!(!paused(&breaker));
    assert_eq!(breaker.take_news(), []);
}

#[test]
fn alone_it_does_until_another_one_goes_through() {
    let mut breaker = Breaker::new(64);
    breaker.note_request(1);
    breaker.judge(seconds(0), 7, 1, refuses());
    breaker.end_doubt(seconds(0));
    assert!(paused(&breaker));
    assert_eq!(breaker.permit(seconds(1)), Permit::Probe);
    assert!(breaker.is_suspect(7));
    breaker.note_probe(2);
    assert_eq!(breaker.permit(seconds(1)), Permit::Probing);
    assert_eq!(
        breaker.judge(seconds(2), 8, 2, Sign::Works),
        Disposal::Settle
    );
    assert!(!paused(&breaker));
    assert_eq!(breaker.take_news().last(), Some(&News::Resumed(seconds(2))));
    assert_eq!(breaker.judge(seconds(2), 7, 3, refuses()), Disposal::Charge);
}

#[test]
fn probes_of_a_provider_that_refuses_back_off_up_to_a_minute() {
    let mut breaker = Breaker::new(64);
    for id in 1..=5 {
        breaker.judge(seconds(0), id, 1, refuses());
    }
    let (pauses, now) = pauses_before(&mut breaker, 6..18);
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]);
    assert_eq!(breaker.take_news().len(), 1, "the log hears of it once");
    breaker.hurry(now);
    assert_eq!(breaker.permit(now), Permit::Probe);
}

#[test]
fn it_is_no_matter_of_a_few_once_a_fifth_message_is_refused() {
    let mut breaker = Breaker::new(64);
    breaker.judge(seconds(0), 1, 1, refuses());
    breaker.end_doubt(seconds(0));
    let (pauses, _) = pauses_before(&mut breaker, [1, 1, 1, 1, 1, 2, 3, 4, 5, 6]);
    assert_eq!(pauses, [1, 2, 4, 8, 10, 10, 10, 10, 10, 60]);
}

/// How long a paused breaker waits before each of these probes, which are all refused, and when the last one was.
fn pauses_before(breaker: &mut Breaker, probes: impl IntoIterator<Item = i64>) -> (Vec<u64>, Time) {
    let mut now = seconds(0);
    let mut pauses = Vec::new();
    for (request, id) in (2..).zip(probes) {
        let Permit::Nothing(until) = breaker.permit(now) else {
            panic!("a pause");
        };
        pauses.push((until - now).as_secs());
        now = until;
        assert_eq!(breaker.permit(now), Permit::Probe);
        breaker.note_probe(request);
        assert_eq!(
            breaker.judge(now, id, request, refuses()),
            Disposal::Release
        );
    }
    (pauses, now)
}

#[test]
fn while_one_message_says_so_nobody_waits_for_long() {
    let mut breaker = Breaker::new(64);
    breaker.judge(seconds(0), 7, 1, refuses());
    breaker.end_doubt(seconds(0));
    let mut now = seconds(0);
    for request in 2..20 {
        let Permit::Nothing(until) = breaker.permit(now) else {
            panic!("a pause");
        };
        assert!(until - now <= LONGEST_DOUBT);
        now = until;
        assert_eq!(breaker.permit(now), Permit::Probe);
        breaker.note_probe(request);
        breaker.judge(now, 7, request, refuses());
    }
}

#[test]
fn what_was_under_way_before_the_pause_does_not_end_it() {
    let mut breaker = Breaker::new(64);
    breaker.note_request(3);
    breaker.pause(seconds(0), "http 401");
    assert_eq!(
        breaker.judge(seconds(0), 1, 3, Sign::Works),
        Disposal::Settle
    );
    assert!(paused(&breaker));
}

#[test]
fn a_late_refusal_of_what_was_sent_before_the_pause_costs_no_attempt() {
    let mut breaker = Breaker::new(64);
    for id in 1..=6 {
        breaker.note_request(id as u64);
    }
    for id in 1..=5 {
        breaker.judge(seconds(0), id, id as u64, refuses());
    }
    assert!(paused(&breaker));
    breaker.hurry(seconds(0));
    breaker.note_probe(7);
    breaker.judge(seconds(0), 7, 7, Sign::Works);
    assert!(!paused(&breaker));
    assert_eq!(
        breaker.judge(seconds(1), 6, 6, refuses()),
        Disposal::Release
    );
    breaker.note_request(8);
    breaker.judge(seconds(1), 8, 8, Sign::Works);
    // With the credentials of now it is a matter of its own.
    assert_eq!(
        breaker.judge(seconds(1), 6, 8, refuses()),
        Disposal::Release
    );
}

#[test]
fn what_was_refused_with_the_settings_of_before_costs_no_attempt() {
    let mut breaker = Breaker::new(64);
    breaker.note_request(1);
    breaker.note_request(2);
    assert_eq!(
        breaker.judge(seconds(0), 1, 1, refuses()),
        Disposal::Release
    );
    breaker.reset(seconds(0), 64);
    assert_eq!(
        breaker.judge(seconds(0), 2, 2, refuses()),
        Disposal::Release
    );
    // Nor do the two count towards a pause.
    for id in 3..=6 {
        breaker.note_request(id as u64);
        breaker.judge(seconds(0), id, id as u64, refuses());
        assert!(!paused(&breaker));
    }
}

#[test]
fn an_endpoint_that_is_away_costs_few_attempts() {
    let mut breaker = Breaker::new(64);
    let unreached = || Sign::Unreached("no connection".to_owned());
    for id in 0..15 {
        assert_eq!(
            breaker.judge(seconds(0), id, 1, unreached()),
            Disposal::Settle
        );
    }
    // The same ones again say nothing new.
    assert_eq!(
        breaker.judge(seconds(0), 0, 1, unreached()),
        Disposal::Settle
    );
    assert_eq!(
        breaker.judge(seconds(0), 15, 1, unreached()),
        Disposal::Release
    );
    assert!(paused(&breaker));
    assert_eq!(
        breaker.judge(seconds(0), 16, 1, unreached()),
        Disposal::Release
    );
}

#[test]
fn what_had_no_answer_before_a_reload_does_not_pause_the_breaker_after_it() {
    let mut breaker = Breaker::new(64);
    breaker.note_request(1);
    breaker.note_request(2);
    let fails = || Sign::Fails("timeout".to_owned());
    for id in 0..10 {
        breaker.judge(seconds(0), id, 1, fails());
    }
    breaker.reset(seconds(1), 64);
    for id in 10..100 {
        assert_eq!(breaker.judge(seconds(2), id, 2, fails()), Disposal::Settle);
    }
    breaker.note_request(3);
    for id in 100..115 {
        breaker.judge(seconds(3), id, 3, fails());
        assert!(!paused(&breaker));
    }
    breaker.judge(seconds(3), 115, 3, fails());
    assert!(paused(&breaker));
}

#[test]
fn one_that_always_fails_never_holds_the_breaker() {
    let mut breaker = Breaker::new(64);
    for _ in 0..1000 {
        let sign = Sign::Fails("http 500".to_owned());
        assert_eq!(breaker.judge(seconds(0), 1, 1, sign), Disposal::Settle);
    }
    assert!(!paused(&breaker));
}

#[test]
fn one_answer_to_many_is_one_piece_of_evidence() {
    let mut breaker = Breaker::new(64);
    let fails = || Sign::Fails("http 503".to_owned());
    for id in 0..500 {
        let disposal = breaker.judge_shared(seconds(0), id, 0, 1, fails());
        assert_eq!(disposal, Disposal::Settle);
    }
    for id in 0..500 {
        let disposal = breaker.judge_shared(seconds(0), id, 0, 1, refuses());
        assert_eq!(disposal, Disposal::Release);
    }
    assert!(!paused(&breaker));
    // Sixteen of them are enough, as ever.
    for batch in 1..=15 {
        assert!(!paused(&breaker));
        for id in 0..500 {
            breaker.judge_shared(seconds(0), batch * 1000 + id, batch * 1000, 1, fails());
        }
    }
    assert!(paused(&breaker));
}

#[test]
fn one_batch_that_goes_through_widens_the_window_by_one_request() {
    let mut breaker = Breaker::new(64);
    breaker.judge(
        seconds(0),
        1,
        1,
        Sign::Throttles("http 429".to_owned(), None),
    );
    let Permit::Nothing(until) = breaker.permit(seconds(0)) else {
        panic!("a pause");
    };
    assert_eq!(breaker.permit(until), Permit::Requests(32));
    for batch in 0..32 {
        assert_eq!(breaker.permit(until), Permit::Requests(32));
        for id in 0..500 {
            breaker.judge_shared(until, batch * 1000 + id, batch * 1000, 2, Sign::Works);
        }
    }
    assert_eq!(breaker.permit(until), Permit::Requests(33));
}

fn rejects() -> Sign {
    Sign::Rejects("http 400".to_owned())
}

#[test]
fn ten_different_messages_refused_in_a_row_pause_the_breaker_and_none_ends() {
    let mut breaker = Breaker::new(64);
    for id in 1..10 {
        // Again and again, as long as nothing else goes through.
        for _ in 0..3 {
            let disposal = breaker.judge(seconds(0), id, 1, rejects());
            assert_eq!(disposal, Disposal::Charge);
        }
    }
    assert_eq!(
        breaker.judge(seconds(0), 10, 1, rejects()),
        Disposal::Release
    );
    assert_eq!(
        breaker.take_news(),
        [News::Paused("http 400".to_owned(), seconds(1))]
    );
    let mut now = seconds(0);
    for (step, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        assert_eq!(breaker.permit(now), Permit::Nothing(now + seconds(pause)));
        now += seconds(pause);
        breaker.note_probe(2 + step as u64);
        let disposal = breaker.judge(now, 11 + step as i64, 2 + step as u64, rejects());
        assert_eq!(disposal, Disposal::Release);
    }
    assert_eq!(breaker.take_news(), []);
}

#[test]
fn a_message_that_is_refused_again_after_another_was_taken_ends() {
    let mut breaker = Breaker::new(64);
    assert_eq!(breaker.judge(seconds(0), 7, 1, rejects()), Disposal::Charge);
    breaker.judge(seconds(0), 8, 1, Sign::Works);
    assert_eq!(breaker.judge(seconds(1), 7, 2, rejects()), Disposal::End);
    // Nine more are no ten in a row.
    for id in 10..19 {
        breaker.judge(seconds(1), id, 2, rejects());
    }
    assert!(!paused(&breaker));
}
