use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> (Option<String>, String) {
    let Mailbox { name, address } = Mailbox::parse(text).unwrap();
    (name, address)
}

#[test]
fn names_and_addresses() {
    for (text, name, address) in [
        (" ann@example.com\t", None, "ann@example.com"),
        ("<ann@example.com>", None, "ann@example.com"),
        ("\"\" <ann@example.com>", None, "ann@example.com"),
        (
            "Ann Lee <ann@example.com>",
            Some("Ann Lee"),
            "ann@example.com",
        ),
        ("Ann<ann@example.com>", Some("Ann"), "ann@example.com"),
        (
            "Ann   M. Lee   <ann@example.com>",
            Some("Ann M. Lee"),
            "ann@example.com",
        ),
        (
            "\"Lee, Ann\" <ann@example.com>",
            Some("Lee, Ann"),
            "ann@example.com",
        ),
        (
            "\"Ann \\\"A\\\" \\\\ <Lee>\" <ann@example.com>",
            Some("Ann \"A\" \\ <Lee>"),
            "ann@example.com",
        ),
        (
            "\"Ann\" Lee <ann@example.com>",
            Some("Ann Lee"),
            "ann@example.com",
        ),
        (
            "Zoë Müller <zoë@bücher.example>",
            Some("Zoë Müller"),
            "zoë@xn--bcher-kva.example",
        ),
        (
            "山田　太郎 <y@example.jp>",
            Some("山田　太郎"),
            "y@example.jp",
        ),
        (
            "=?utf-8?q?x?= <a@example.com>",
            Some("=?utf-8?q?x?="),
            "a@example.com",
        ),
        (
            "O'Hara <o'hara@example.com>",
            Some("O'Hara"),
            "o'hara@example.com",
        ),
    ] {
        let expected = (name.map(str::to_owned), address.to_owned());
        assert_eq!(parse(text), expected, "{text}");
        assert_eq!(
            super::super::to_ascii(bare(text)).unwrap(),
            address,
            "{text}"
        );
    }
}

#[test]
fn what_is_no_mailbox_and_why() {
    use AddressError::{Control, DomainCharacter, Empty, LocalCharacter, NoAt};
    for (text, error) in [
        ("", MailboxError::Address(Empty)),
        ("Ann <>", MailboxError::Address(Empty)),
        ("Ann", MailboxError::Address(NoAt)),
        ("Ann <ann>", MailboxError::Address(NoAt)),
        ("Ann <ann@example.com", MailboxError::NoEnd),
        ("Ann <ann@example.com> Lee", MailboxError::NoEnd),
        ("Ann <ann@example.com> (work)", MailboxError::NoEnd),
        (
            "ann@example.com>",
            MailboxError::Address(DomainCharacter('>')),
        ),
        (
            "<<ann@example.com>>",
            MailboxError::Address(LocalCharacter('<')),
        ),
        (
            "Ann < ann@example.com>",
            MailboxError::Address(LocalCharacter(' ')),
        ),
        // Quoted local parts, comments, routes and groups.
        (
            "\"ann\"@example.com",
            MailboxError::Address(LocalCharacter('"')),
        ),
        (
            "\"a b\" <\"ann\"@example.com>",
            MailboxError::Address(LocalCharacter('"')),
        ),
        ("a@b(c)d", MailboxError::Address(DomainCharacter('('))),
        (
            "ann@example.com (Ann)",
            MailboxError::Address(DomainCharacter(' ')),
        ),
        ("Ann (work) <ann@example.com>", MailboxError::Name('(')),
        (
            "Ann <ann(work)@example.com>",
            MailboxError::Address(LocalCharacter('(')),
        ),
        (
            "Ann <@a.example:ann@example.com>",
            MailboxError::Address(LocalCharacter('@')),
        ),
        (
            "Team: ann@example.com;",
            MailboxError::Address(LocalCharacter(':')),
        ),
        ("Team: Ann <ann@example.com>;", MailboxError::Name(':')),
        ("Team: Ann <ann@example.com>", MailboxError::Name(':')),
        ("Lee, Ann <ann@example.com>", MailboxError::Name(',')),
        ("ann@example.com <ann@example.com>", MailboxError::Name('@')),
        ("Ann \\\"Lee <ann@example.com>", MailboxError::Unquoted),
        ("Ann \\Lee <ann@example.com>", MailboxError::Name('\\')),
        ("\"Ann <ann@example.com>", MailboxError::Unquoted),
        ("\"Ann\\\" <ann@example.com>", MailboxError::Unquoted),
        ("\"Ann\"Lee <ann@example.com>", MailboxError::Name('L')),
        ("Ann\"Lee\" <ann@example.com>", MailboxError::Name('"')),
        // The end of a line and a NUL, in each place.
        (
            "Ann\r\nBcc: b@example.com <ann@example.com>",
            MailboxError::Address(Control('\r')),
        ),
        (
            "\"Ann\n\" <ann@example.com>",
            MailboxError::Address(Control('\n')),
        ),
        (
            "\"Ann\\\0\" <ann@example.com>",
            MailboxError::Address(Control('\0')),
        ),
        (
            "Ann\u{2028} <ann@example.com>",
            MailboxError::Address(Control('\u{2028}')),
        ),
        (
            "Ann <ann@example.com\r\n>",
            MailboxError::Address(Control('\r')),
        ),
        (
            "Ann\tLee <ann@example.com>",
            MailboxError::Address(Control('\t')),
        ),
    ] {
        assert_eq!(Mailbox::parse(text), Err(error), "{text}");
        assert_eq!(bare(text), text.trim(), "{text}");
    }
    let long = |count| format!("\"{}\" <ann@example.com>", "ü".repeat(count));
    assert!(Mailbox::parse(&long(128)).is_ok());
    assert_eq!(
        Mailbox::parse(&long(129)),
        Err(MailboxError::NameTooLong(129))
    );
    for (error, text) in [
        (MailboxError::Name(','), "has ',' in a name without quotes"),
        (
            MailboxError::NameTooLong(129),
            "has a name of 129 characters, at most 128 are allowed",
        ),
        (MailboxError::Unquoted, "has a quote without its end"),
        (MailboxError::NoEnd, "has < and does not end with >"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn lists_are_split_at_commas_outside_quotes() {
    for (list, expected) in [
        ("", &[][..]),
        (" \t", &[]),
        ("a@example.com", &["a@example.com"]),
        (
            " a@example.com ,\tb@example.com",
            &["a@example.com", "b@example.com"],
        ),
        ("a@example.com,", &["a@example.com", ""]),
        (",", &["", ""]),
        (
            "\"Lee, Ann\" <a@example.com>, B <b@example.com>",
            &["\"Lee, Ann\" <a@example.com>", "B <b@example.com>"],
        ),
        (
            "\"a\\\", b\" <a@example.com>,\"\\\\\" <b@example.com>",
            &["\"a\\\", b\" <a@example.com>", "\"\\\\\" <b@example.com>"],
        ),
        ("\"a, b@example.com", &["\"a, b@example.com"]),
        // A backslash is nothing outside quotes.
        ("a\\,b@example.com", &["a\\", "b@example.com"]),
    ] {
        let found: Vec<&str> = elements(list.as_bytes())
            .into_iter()
            .map(|one| std::str::from_utf8(one).unwrap())
            .collect();
        assert_eq!(found, expected, "{list}");
    }
    // In Latin 1.
    assert_eq!(elements(b"\"M\xfcller, A\" <a@b>,c@d").len(), 2);
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(name in "[ -~ü€]{0,30}", other in "[ -~]{1,30}") {
        let mailbox = |name: &str| Mailbox {
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            address: "a@example.com".to_owned(),
        };
        let (one, other) = (mailbox(&name), mailbox(&other));
        prop_assert_eq!(&Mailbox::parse(&one.text()).unwrap(), &one);
        let list = format!("{}, {}", one.text(), other.text());
        let read: Vec<Mailbox> = elements(list.as_bytes())
            .into_iter()
            .map(|one| Mailbox::parse(std::str::from_utf8(one).unwrap()).unwrap())
            .collect();
        prop_assert_eq!(read, [one, other]);
    }

    #[test]
    fn no_text_gets_out_of_its_field(text in ".{0,20}<?a@example\\.com>?.{0,3}") {
        if let Ok(mailbox) = Mailbox::parse(&text) {
            prop_assert!(!mailbox.text().chars().any(line::is_control));
            prop_assert!(super::super::check(mailbox.address()).is_ok());
            prop_assert!(!bare(&text).contains(['<', '>', ',', ' ']));
        }
    }
}
