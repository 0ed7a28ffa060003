use super::*;
use proptest::prelude::*;

#[test]
fn what_is_an_address() {
    for good in [
        "a@b",
        "user@example.com",
        "first.last+tag@sub.example.co.uk",
        "!#$%&'*+-/=?^_`{|}~@example.com",
        "1@1.com",
        "root@localhost",
        "δοκιμή@παράδειγμα.ελ",
        "user@xn--hxajbheg2az3al.xn--jxalpdlp",
        "उपयोगकर्ता@उदाहरण.भारत",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
}

#[test]
fn what_is_none_and_why() {
    let cases = [
        ("", AddressError::Empty),
        (
            "a@example.com\r\nBcc: b@example.com",
            AddressError::Control('\r'),
        ),
        ("a@example.com\0", AddressError::Control('\0')),
        ("a\u{85}@example.com", AddressError::Control('\u{85}')),
        ("example.com", AddressError::NoAt),
        ("@example.com", AddressError::LocalDots),
        (".a@example.com", AddressError::LocalDots),
        ("a.@example.com", AddressError::LocalDots),
        ("a..b@example.com", AddressError::LocalDots),
        ("Ann <a@example.com>", AddressError::LocalCharacter(' ')),
        ("<a@example.com>", AddressError::LocalCharacter('<')),
        ("\"a b\"@example.com", AddressError::LocalCharacter('"')),
        ("a@b@example.com", AddressError::LocalCharacter('@')),
        ("a,b@example.com", AddressError::LocalCharacter(',')),
        ("a\u{2028}b@example.com", AddressError::Control('\u{2028}')),
        (
            "a\u{3000}b@example.com",
            AddressError::LocalCharacter('\u{3000}'),
        ),
        (
            "\u{200b}ada@example.com",
            AddressError::LocalCharacter('\u{200b}'),
        ),
        (
            "ada\u{202e}@example.com",
            AddressError::LocalCharacter('\u{202e}'),
        ),
        (
            "a\u{200d}da@example.com",
            AddressError::LocalCharacter('\u{200d}'),
        ),
        (
            "<eve@evil.example>.corp.example",
            AddressError::LocalCharacter('<'),
        ),
        ("mailto:ada@example.com", AddressError::LocalCharacter(':')),
        ("a@exam\u{202e}ple.com", AddressError::DomainConversion),
        ("ada@example。com。", AddressError::DomainConversion),
        ("a@", AddressError::DomainLabel),
        ("a@example..com", AddressError::DomainLabel),
        ("a@example.com.", AddressError::DomainLabel),
        ("a@-example.com", AddressError::DomainLabel),
        ("a@example-.com", AddressError::DomainLabel),
        ("a@exam ple.com", AddressError::DomainCharacter(' ')),
        ("a@exam_ple.com", AddressError::DomainCharacter('_')),
        ("a@[127.0.0.1]", AddressError::DomainCharacter('[')),
        ("{a@example.com}", AddressError::DomainCharacter('}')),
        ("a@example.com>", AddressError::DomainCharacter('>')),
    ];
    for (bad, why) in cases {
        assert_eq!(check(bad), Err(why), "{bad:?}");
    }
}

#[test]
fn a_domain_goes_in_ascii() {
    for (address, expected) in [
        ("a@Example.COM", "a@Example.COM"),
        ("δοκιμή@παράδειγμα.ελ", "δοκιμή@xn--hxajbheg2az3al.xn--qxam"),
        ("a@BÜCHER.example", "a@xn--bcher-kva.example"),
        // The Japanese full stop, letters and digits of full width, and a hyphen that is not shown.
        ("a@例え。example", "a@xn--r8jz45g.example"),
        ("a@ｓｈｏｐ１．example", "a@shop1.example"),
        ("a@ex\u{ad}ample.com", "a@example.com"),
    ] {
        assert_eq!(to_ascii(address).as_deref(), Ok(expected), "{address}");
    }
}

#[test]
fn one_address_stays_one_in_ascii() {
    for (bad, why) in [
        ("a@x.example，b＠y.example", AddressError::DomainConversion),
        ("a@x.example；b＠y.example", AddressError::DomainConversion),
        ("a@x.example\u{b4}y", AddressError::DomainConversion),
        ("a@x.example＞", AddressError::DomainConversion),
        ("a@℀.example", AddressError::DomainConversion),
        ("a@bücher＿x.example", AddressError::DomainConversion),
        ("a@－x.example", AddressError::DomainConversion),
        ("a@\u{ad}", AddressError::DomainConversion),
        ("a@\u{ad}.example", AddressError::DomainConversion),
        ("a@ü。。example", AddressError::DomainConversion),
    ] {
        assert_eq!(check(bad), Err(why), "{bad}");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    for c in ('\u{80}'..'\u{20000}').filter(|c| !c.is_control()) {
        let address = format!("a@x{c}y.example");
        if let Ok(ascii) = to_ascii(&address) {
            let domain = ascii.strip_prefix("a@").unwrap();
            assert!(domain.chars().all(fits), "U+{:04X}: {ascii}", u32::from(c));
        }
    }
}

/// Spellings of one address, whose key is the first.
const SPELLINGS: [&[&str]; 4] = [
    &[
        "ada@example.com",
        "ADA@Example.COM",
        "ada@exam\u{ad}ple.com",
        "ada@example。com",
        "ada@ｅxample.com",
    ],
    &[
        "a@xn--bcher-kva.example",
        "a@bücher.example",
        "A@BÜCHER.example",
        "a@XN--BCHER-KVA.example",
        "a@bu\u{308}cher.example",
    ],
    &["ünal@example.com", "Ünal@example.com"],
    &[
        "νίκος@example.com",
        "ΝΊΚΟΣ@example.com",
        "Νίκος@example.com",
    ],
];

#[test]
fn all_spellings_of_an_address_have_one_key() {
    for spellings in SPELLINGS {
        for spelling in spellings {
            assert_eq!(key(spelling).as_deref(), Ok(spellings[0]), "{spelling}");
        }
    }
    assert!(matches!(key("ada@example.com"), Ok(Cow::Borrowed(_))));
    for (one, other) in [
        ("ada@example.com", "аda@example.com"),
        ("ａda@example.com", "ada@example.com"),
        ("u\u{308}nal@example.com", "ünal@example.com"),
        ("a@strasse.example", "a@straße.example"),
        ("İ@example.com", "i@example.com"),
    ] {
        assert_ne!(key(one), key(other), "{one}");
    }
    assert_eq!(key("ada@example.com."), Err(AddressError::DomainLabel));
}

#[test]
fn one_mailbox_differs_only_in_the_spelling_of_its_domain() {
    for (one, other, is_same) in [
        ("ada@Example.com", "ada@example.COM", true),
        ("ada@bücher.example", "ada@XN--bcher-kva.example", true),
        ("Ada@example.com", "ada@example.com", false),
        ("ada@example.com", "ada@example.org", false),
    ] {
        assert_eq!(is_same_mailbox(one, other), is_same, "{one} {other}");
    }
    let lists = [
        "ada@Example.com",
        "ada@example.com",
        "bob@example.com",
        "ada@EXAMPLE.com",
    ];
    assert_eq!(mailboxes(lists), ["ada@Example.com", "bob@example.com"]);
}

#[test]
fn a_reason_shows_no_character_that_is_not_seen() {
    for (address, reason) in [
        ("\u{200b}ada@example.com", "has U+200B before the @"),
        ("ada@exam\u{3000}ple.com", "has U+3000 behind the @"),
        ("ada\n@example.com", "contains the control character U+000A"),
        ("\u{2028}", "contains the control character U+2028"),
        ("a b@example.com", "has ' ' before the @"),
    ] {
        assert_eq!(check(address).unwrap_err().to_string(), reason);
    }
}

#[test]
fn lengths_are_those_of_rfc_5321() {
    let label = "d".repeat(LABEL_MAX);
    let local = |octets| "l".repeat(octets);
    let long_domain = [label.as_str(); 3].join(".");
    assert_eq!(check(&format!("{}@example.com", local(64))), Ok(()));
    assert_eq!(
        check(&format!("{}@example.com", local(65))),
        Err(AddressError::LocalTooLong(65))
    );
    // 191 octets of domain, the @, and 62 before it.
    assert_eq!(check(&format!("{}@{long_domain}", local(62))), Ok(()));
    assert_eq!(
        check(&format!("{}@{long_domain}", local(63))),
        Err(AddressError::TooLong(255))
    );
    assert_eq!(
        check(&format!("a@{}", [label.as_str(); 4].join("."))),
        Err(AddressError::TooLong(257))
    );
    assert_eq!(
        check(&format!("a@{}", [label.as_str(); 5].join("."))),
        Err(AddressError::DomainTooLong(319))
    );
    assert_eq!(
        check(&format!("a@d{label}")),
        Err(AddressError::DomainLabel)
    );
    // Those of the key: the lower case of this letter has an octet more.
    assert_eq!(check(&format!("{}@example.com", "Ⱥ".repeat(21))), Ok(()));
    assert_eq!(
        check(&format!("{}@example.com", "Ⱥ".repeat(22))),
        Err(AddressError::LocalTooLong(66))
    );
    // Those of the domain in ASCII.
    assert_eq!(check(&format!("a@{}.example", "例".repeat(30))), Ok(()));
    assert_eq!(
        check(&format!("a@{}.example", "例".repeat(60))),
        Err(AddressError::DomainConversion)
    );
    // Octets, not characters.
    assert_eq!(
        check(&format!("{}@example.com", "ü".repeat(33))),
        Err(AddressError::LocalTooLong(66))
    );
}

/// Addresses, and what could be taken for one.
fn like_an_address() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]{1,8}",
        2 => any::<char>().prop_map(String::from),
        1 => Just("\u{ad}".to_owned()),
        1 => "[\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{206f}]",
        1 => "[\\p{L}]{1,6}",
        1 => "[\"()<>\\[\\]@,;:\\\\ \t\r\n]",
        1 => "(mailto:|\\.\\.|\\.|。|＠|，|xn--)",
    ];
    let part = proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat());
    let domain = prop_oneof![
        3 => "([a-z0-9]{1,6}\\.){1,2}[a-z]{2,3}\\.?",
        2 => "[\\p{L}\\p{N}]{1,6}\\.example",
        2 => part.clone(),
    ];
    prop_oneof![
        6 => (part.clone(), domain.clone()).prop_map(|(local, domain)| format!("{local}@{domain}")),
        1 => (part.clone(), domain.clone()).prop_map(|(local, domain)| format!("\"{local}\"@{domain}")),
        1 => (part.clone(), domain.clone()).prop_map(|(name, rest)| format!("<{name}@evil.example>.{rest}")),
        1 => (part.clone(), part.clone(), domain).prop_map(|(one, two, domain)| format!("{one}@{two}@{domain}")),
        1 => part,
    ]
}

/// The address to which a naive reader of a list sends: the first that is in angle brackets, without comments and quotes,
/// of those that commas separate.
fn naive(text: &str) -> String {
    let first = text.split([',', ';']).next().unwrap_or_default();
    let bare = match first.split_once('<') {
        Some((_, rest)) => rest.split('>').next().unwrap_or_default(),
        None => first.split('(').next().unwrap_or_default(),
    };
    bare.trim().trim_matches('"').to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn an_address_has_a_key_that_is_one_and_any_reader_takes_for_the_same(text in like_an_address()) {
        let judged = check(&text);
        prop_assert_eq!(to_ascii(&text).map(drop), judged);
        prop_assert_eq!(key(&text).map(drop), judged);
        let Ok(key) = key(&text) else {
            prop_assert!(!line::visible(&judged.unwrap_err().to_string()).contains("<U+"));
            return Ok(());
        };
        prop_assert_eq!(check(&key), Ok(()));
        prop_assert_eq!(super::key(&key).unwrap(), key.clone());
        prop_assert_eq!(to_ascii(&key).unwrap(), key.clone());
        let ascii = to_ascii(&text).unwrap();
        prop_assert_eq!(super::key(&ascii).unwrap(), key.clone());
        prop_assert!(is_same_mailbox(&text, &ascii));
        prop_assert_eq!(naive(&key), key.clone().into_owned());
        prop_assert!(!key.contains(|c: char| c.is_control() || c.is_whitespace() || line::is_invisible(c)));
    }

    #[test]
    fn what_passes_cannot_break_out_of_a_header(text in "\\PC{0,20}|.{0,20}@.{0,20}|[a-z.@<>,;:\\\\\" \r\n\t-]{0,20}") {
        if check(&text).is_ok() {
            let ascii = to_ascii(&text).unwrap();
            prop_assert!(!ascii.contains(|c: char| c.is_control() || c.is_whitespace() || "<>()[],;:\\\"".contains(c)));
            prop_assert_eq!(text.matches('@').count(), 1);
            prop_assert!(ascii.len() <= ADDRESS_MAX);
            prop_assert_eq!(to_ascii(&ascii).unwrap(), ascii.clone());
        }
    }
}

#[test]
fn what_a_pattern_allows() {
    for (pattern, address) in [
        ("*@example.com", "ann@Example.com"),
        ("*@bücher.example", "ann@xn--bcher-kva.example"),
        ("shop@example.com", "shop@EXAMPLE.com"),
    ] {
        assert!(is_allowed(pattern, address), "{pattern} {address}");
    }
    for (pattern, address) in [
        ("*@example.com", "ann@sub.example.com"),
        ("*@example.com", "ann@example.com.evil.example"),
        ("*@example.com", "ann@badexample.com"),
        ("*@example.com", "example.com"),
        ("shop@example.com", "Shop@example.com"),
        ("shop@example.com", "shop@example.org"),
        ("", "shop@example.com"),
    ] {
        assert!(!is_allowed(pattern, address), "{pattern} {address}");
    }
}
