//! The rules for a message, at their bounds.

use super::*;

const LIMITS: Limits = Limits {
    message_size: 2000,
    now: 1_000_000,
};

fn text(text: &str) -> Option<Text<'_>> {
    Some(Text::Read(Cow::Borrowed(text)))
}

/// Sets a field.
type Set = fn(&mut Draft<'static>, Option<Text<'static>>);

/// One that may be scheduled.
fn draft() -> Draft<'static> {
    Draft {
        lists: [vec![text("a@example.com")], vec![], vec![], vec![]],
        from_address: None,
        headers: None,
        unsubscribe_url: None,
        list: None,
        subject: text("Hi"),
        body_text: Some(Body {
            octets: 5,
            is_readable: true,
        }),
        body_html: None,
        kind: text("message"),
        item_key: None,
        group_key: None,
        data: Data {
            json_type: "object",
            octets: 2,
        },
        send_at: Some(LIMITS.now),
        expires_at: None,
        priority: Some(0),
        max_attempts: Some(25),
    }
}

fn refused(change: impl FnOnce(&mut Draft<'static>)) -> String {
    let mut draft = draft();
    change(&mut draft);
    match check(&draft, LIMITS) {
        Ok(()) => String::new(),
        Err(refusal) => refusal.reason().to_owned(),
    }
}

#[test]
fn what_is_in_order_passes() {
    assert_eq!(refused(|_| {}), "");
    assert_eq!(
        refused(|draft| {
            draft.subject = None;
            draft.body_text = None;
            draft.kind = text("größe");
            draft.priority = Some(-100);
            draft.max_attempts = Some(1000);
            draft.expires_at = Some(LIMITS.now + 1);
        }),
        ""
    );
}

#[test]
fn an_address_is_named_by_its_place() {
    let reason = refused(|draft| draft.lists[1] = vec![text("b@example.com"), text("nobody")]);
    assert_eq!(reason, "cc[2] \"nobody\" has no @");
    assert_eq!(
        refused(|draft| draft.lists[0] = vec![None]),
        "recipients[1] is null"
    );
    assert_eq!(
        refused(|draft| draft.lists[3] = vec![Some(Text::Unread)]),
        format!("reply_to[1] {NOT_READ}")
    );
    assert_eq!(
        refused(|draft| draft.from_address = text("Ann Lee <ann@example.com>")),
        ""
    );
    assert_eq!(
        refused(|draft| draft.from_address = text("Ann <ann>")),
        "from_address \"Ann <ann>\" has no @"
    );
    assert_eq!(
        refused(|draft| draft.from_address = text("a@b.example, c@d.example")),
        "from_address \"a@b.example, c@d.example\" has more than one @"
    );
    assert_eq!(
        refused(|draft| draft.from_address = Some(Text::Unread)),
        format!("from_address {NOT_READ}")
    );
    let mut draft = draft();
    draft.lists[2] = vec![text("nobody")];
    assert!(matches!(check(&draft, LIMITS), Err(Refusal::Address(_))));
}

#[test]
fn addresses_are_counted_together() {
    assert_eq!(
        refused(|draft| draft.lists[0].clear()),
        "recipients is empty"
    );
    let many = |number| vec![text("a@example.com"); number];
    let full = |draft: &mut Draft<'static>, bcc| {
        draft.lists = [many(20), many(20), many(bcc), many(10)];
    };
    assert_eq!(refused(|draft| full(draft, 10)), "");
    assert_eq!(
        refused(|draft| full(draft, 11)),
        "recipients, cc and bcc have 51 addresses, at most 50 are allowed"
    );
    assert_eq!(
        refused(|draft| draft.lists[3] = many(11)),
        "reply_to has 11 addresses, at most 10 are allowed"
    );
}

#[test]
fn a_line_has_no_control_characters() {
    for (bad, named) in [
        ("a\nb", "U+000A"),
        ("a\0", "U+0000"),
        ("a\u{7f}", "U+007F"),
        ("a\u{85}b", "U+0085"),
        ("a\u{2028}b", "U+2028"),
        ("a\u{2029}", "U+2029"),
    ] {
        let problem = format!("contains the control character {named}");
        assert_eq!(
            refused(|draft| draft.subject = text(bad)),
            format!("subject {problem}")
        );
        assert_eq!(
            refused(|draft| draft.kind = text(bad)),
            format!("kind {problem}")
        );
    }
}

#[test]
fn texts_are_bounded_and_not_empty() {
    let longest: &'static str = "é".repeat(499).leak();
    let longer: &'static str = "é".repeat(500).leak();
    assert_eq!(refused(|draft| draft.subject = text(longest)), "");
    assert_eq!(
        refused(|draft| draft.subject = text(longer)),
        "subject has 1000 octets, at most 998 are allowed"
    );
    let name: &'static str = "é".repeat(255).leak();
    let long_name: &'static str = "é".repeat(256).leak();
    let set: [(&str, Set); 4] = [
        ("kind", |draft, value| draft.kind = value),
        ("item_key", |draft, value| draft.item_key = value),
        ("group_key", |draft, value| draft.group_key = value),
        ("subject", |draft, value| draft.subject = value),
    ];
    for (field, set) in set {
        assert_eq!(
            refused(|draft| set(draft, text(""))),
            format!("{field} is empty")
        );
        assert_eq!(
            refused(|draft| set(draft, Some(Text::Unread))),
            format!("{field} {NOT_READ}")
        );
        if field != "subject" {
            assert_eq!(refused(|draft| set(draft, text(name))), "");
            assert_eq!(
                refused(|draft| set(draft, text(long_name))),
                format!("{field} has 256 characters, at most 255 are allowed")
            );
        }
    }
    for octets in [0, 3] {
        let body = Some(Body {
            octets,
            is_readable: false,
        });
        let problem = if octets == 0 { "is empty" } else { NOT_READ };
        assert_eq!(
            refused(|draft| draft.body_text = body),
            format!("body_text {problem}")
        );
        assert_eq!(
            refused(|draft| draft.body_html = body),
            format!("body_html {problem}")
        );
    }
    assert_eq!(
        refused(|draft| draft.kind = text("activation")),
        "kind \"activation\" is reserved for mail with a token"
    );
}

#[test]
fn sizes_are_added_up() {
    let data = |json_type, octets| Data { json_type, octets };
    assert_eq!(
        refused(|draft| draft.data = data("array", 2)),
        "data is a JSON array, not an object"
    );
    assert_eq!(
        refused(|draft| draft.data = data("object", DATA_MAX + 1)),
        "data has 1048577 octets as JSON, at most 1048576 are allowed"
    );
    // Two octets of subject and five of text.
    assert_eq!(refused(|draft| draft.data = data("object", 1993)), "");
    assert_eq!(
        refused(|draft| draft.data = data("object", 1994)),
        "It has 2001 octets, at most 2000 are allowed"
    );
}

#[test]
fn numbers_and_times_are_within_bounds() {
    assert_eq!(
        refused(|draft| draft.priority = Some(101)),
        "priority is 101, not between -100 and 100"
    );
    assert_eq!(
        refused(|draft| draft.max_attempts = Some(0)),
        "max_attempts is 0, not between 1 and 1000"
    );
    for infinite in [Time::MIN, Time::MAX] {
        assert_eq!(
            refused(|draft| draft.send_at = Some(infinite)),
            "send_at is infinite"
        );
        assert_eq!(
            refused(|draft| draft.expires_at = Some(infinite)),
            "expires_at is infinite"
        );
    }
    assert_eq!(
        refused(|draft| draft.expires_at = draft.send_at),
        "expires_at is not after send_at"
    );
    // Two hours ago, until an hour ago.
    assert_eq!(
        refused(|draft| {
            draft.send_at = Some(LIMITS.now - 2);
            draft.expires_at = Some(LIMITS.now - 1);
        }),
        "expires_at is past"
    );
}

#[test]
fn a_list_is_for_mail_to_one_address() {
    assert_eq!(refused(|draft| draft.list = text("newsletter")), "");
    assert_eq!(refused(|draft| draft.list = text("")), "list is empty");
    assert_eq!(
        refused(|draft| draft.list = text("a\nb")),
        "list contains the control character U+000A"
    );
    assert_eq!(
        refused(|draft| draft.list = Some(Text::Read("a".repeat(129).into()))),
        "list has 129 octets, at most 128 are allowed"
    );
    let to_two = refused(|draft| {
        draft.list = text("newsletter");
        draft.lists[2] = vec![text("b@example.com")];
    });
    assert_eq!(
        to_two,
        "list is for mail to one address, and recipients, cc and bcc have 2"
    );
}

#[test]
fn headers_and_the_url_to_unsubscribe_are_judged() {
    assert_eq!(
        refused(|draft| draft.headers = text("{\"Bcc\": \"a@b.example\"}")),
        "headers \"Bcc\" is not a name that a message may set"
    );
    assert_eq!(
        refused(|draft| draft.headers = text("{\"X-A\": \"b\"}")),
        ""
    );
    assert_eq!(
        refused(|draft| draft.headers = Some(Text::Unread)),
        format!("headers {NOT_READ}")
    );
    assert_eq!(
        refused(|draft| draft.unsubscribe_url = text("http://a.example")),
        "unsubscribe_url does not begin with https://"
    );
}
