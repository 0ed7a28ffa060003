//! Large mails in flight are bounded, and mails that are not large do not wait for them.

use super::identity::Harness;
use super::*;
use crate::attachment::Attachment;

const MEBIBYTE: usize = 1 << 20;

/// A mail of this size in mebibytes; of 0, a small one.
fn sized(id: i64, mebibytes: usize) -> Mail {
    Mail {
        size: (mebibytes * MEBIBYTE).max(1_000),
        ..mail(id)
    }
}

fn claimed(mails: Vec<Mail>) -> Harness {
    let mut harness = Harness::idle(Fake {
        batch: 100,
        idempotent: false,
        has_sign: false,
    });
    harness.claim(mails);
    harness
}

/// The ids of the mails of each request in flight.
fn in_flight(harness: &Harness) -> Vec<Vec<i64>> {
    let id = |message_id: &String| i64::from_str_radix(&message_id[24..], 16).unwrap();
    let requests = harness.sent.iter();
    requests
        .map(|(_, mails)| mails.iter().map(id).collect())
        .collect()
}

#[test]
fn large_mails_wait_for_room_and_small_ones_overtake_them() {
    let mails = [(1, 12), (2, 12), (3, 12), (4, 0), (5, 0)];
    let mut harness = claimed(mails.map(|(id, size)| sized(id, size)).to_vec());
    assert_eq!(in_flight(&harness), [vec![1], vec![2], vec![4, 5]]);
    harness.answer();
    assert_eq!(in_flight(&harness), [vec![2], vec![4, 5], vec![3]]);
}

#[test]
fn a_mail_larger_than_the_bound_goes_when_no_large_one_is_in_flight() {
    let mails = [(1, 12), (2, 100), (3, 1), (4, 0)];
    let mut harness = claimed(mails.map(|(id, size)| sized(id, size)).to_vec());
    // No other large mail overtakes it, or it might wait for ever.
    assert_eq!(in_flight(&harness), [vec![1], vec![4]]);
    harness.answer();
    assert_eq!(in_flight(&harness), [vec![4], vec![2]]);
    harness.answer();
    assert_eq!(in_flight(&harness), [vec![2]]);
    harness.answer();
    assert_eq!(in_flight(&harness), [vec![3]]);
}

#[test]
fn many_small_mails_behind_many_large_ones_are_sent_at_once() {
    let mut mails: Vec<Mail> = (1..=100).map(|id| sized(id, 10)).collect();
    mails.extend((101..=500).map(|id| sized(id, 0)));
    let mut harness = claimed(mails);
    let mut large = 0;
    let mut small = 0;
    while small < 400 {
        let [first, ..] = &in_flight(&harness)[..] else {
            panic!("nothing is in flight");
        };
        small += first.iter().filter(|id| **id > 100).count();
        large += first.iter().filter(|id| **id <= 100).count();
        harness.answer();
    }
    assert!(large <= 4, "{large} large mails went first");
}

#[test]
fn a_mail_with_files_is_alone_in_its_request() {
    let mut with_file = sized(2, 0);
    with_file.message.attachments = vec![Attachment::default()];
    let harness = claimed(vec![sized(1, 0), with_file, sized(3, 0), sized(4, 0)]);
    assert_eq!(in_flight(&harness), [vec![1], vec![2], vec![3, 4]]);
}

/// Few large mails are claimed, but those that a probe is chosen from: the first one may be what is refused.
#[test]
fn a_probe_is_chosen_from_several_mails_though_the_last_one_was_large() {
    let mut harness = claimed(vec![sized(1, 20)]);
    let reason = "http 401".to_owned();
    harness.end_request(vec![MessageOutcome::AccountRefused { reason }]);
    for _ in 0..600 {
        harness.wait();
        // The file is as it was.
        harness.say(Event::ReloadFailed);
        let claim = harness.exchange.as_ref().and_then(|(_, claim)| *claim);
        if let Some(limit) = claim {
            assert_eq!(harness.deliverer.status().state, "paused");
            assert!(limit.mails >= 8, "{} mails", limit.mails);
            return;
        }
        if harness.exchange.is_some() {
            harness.end_exchange(&[], Vec::new());
        }
    }
    panic!("no probe was to be claimed");
}
