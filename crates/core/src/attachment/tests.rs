use super::*;
use proptest::prelude::*;

fn refused(filename: &str) -> String {
    judge(filename, None, None).unwrap_err()
}

#[test]
fn a_file_without_a_type_has_that_of_its_extension() {
    for (filename, content_type) in [
        ("invoice.pdf", "application/pdf"),
        ("INVOICE.PDF", "application/pdf"),
        ("Rechnung für Zoë 📎.pdf", "application/pdf"),
        ("archive.tar.gz", "application/gzip"),
        ("a.b.jpeg", "image/jpeg"),
        ("data.xyz", "application/octet-stream"),
        (".profile.txt", "text/plain"),
    ] {
        assert_eq!(
            judge(filename, None, None).unwrap(),
            content_type,
            "{filename}"
        );
    }
    let invite = "text/calendar; method=REQUEST; charset=utf-8";
    assert_eq!(judge("i.ics", Some(invite), None).unwrap(), invite);
    assert!(judge("i.ics", Some("text/plain"), None).is_err());
}

#[test]
fn what_is_no_name() {
    let long = |octets: usize| format!("{}.pdf", "ü".repeat((octets - 4) / 2));
    assert!(judge(&long(254), None, None).is_ok());
    for (filename, problem) in [
        ("", "filename is empty"),
        (
            &*long(256),
            "filename has 256 octets, at most 255 are allowed",
        ),
        (
            "a\r\nb.pdf",
            "filename contains the control character U+000D",
        ),
        (
            "a\u{2028}.pdf",
            "filename contains the control character U+2028",
        ),
        ("a\0.pdf", "filename contains the control character U+0000"),
        ("../a.pdf", "filename contains '/'"),
        ("..\\a.pdf", "filename contains '\\\\'"),
        ("invoice", "filename has no extension"),
        ("invoice.", "filename has no extension"),
        (".profile", "filename has no extension"),
        (".", "filename has no extension"),
    ] {
        assert_eq!(refused(filename), problem, "{filename:?}");
    }
}

#[test]
fn what_is_a_content_id() {
    let judge_id = |id: &str| judge("a.png", None, Some(id));
    let id = |local: usize, domain: usize| format!("{}@{}", "a".repeat(local), "b".repeat(domain));
    for good in ["logo", "a.b_c+d-1", "logo@example.com", &id(64, 13)] {
        assert_eq!(judge_id(good).unwrap(), "image/png", "{good}");
    }
    for bad in [
        "",
        "@",
        "a@",
        "@b",
        "<logo>",
        "a b",
        "a@b@c",
        "a@b_c",
        "ü",
        "a\r\nb",
        &"a".repeat(65),
        &id(65, 1),
        &id(1, 14),
    ] {
        let problem = judge_id(bad).unwrap_err();
        assert_eq!(problem, format!("content_id does not match {ID_PATTERN}"));
    }
}

#[test]
fn the_files_of_a_message_together() {
    let (none, some) = (vec![None; 20], [None, Some("a"), Some("b")]);
    assert_eq!(judge_all(&[], false), Ok(()));
    assert_eq!(judge_all(&none, false), Ok(()));
    assert_eq!(judge_all(&some, true), Ok(()));
    assert_eq!(
        judge_all(&vec![None; 21], true).unwrap_err(),
        "attachments has 21 files, at most 20 are allowed"
    );
    assert_eq!(
        judge_all(&some, false).unwrap_err(),
        "attachments[2] has a content_id, which needs body_html"
    );
    assert_eq!(
        judge_all(&[None, Some("a"), Some("b"), Some("a")], true).unwrap_err(),
        "attachments[4] has the content_id of attachments[2]"
    );
}

proptest! {
    #[test]
    fn what_was_judged_passes_again(stem in "[^/\\\\]{1,9}", extension in "pdf|ICS|jpeg|xyz|.{1,4}") {
        let filename = format!("{stem}.{extension}");
        if let Ok(content_type) = judge(&filename, None, None) {
            prop_assert_eq!(judge(&filename, Some(&content_type), None), Ok(content_type.clone()));
        }
    }

    #[test]
    fn a_reason_quotes_no_value(filename in ".{0,9}secret.{0,9}", content_type in ".{0,9}secret.{0,9}") {
        if let Err(reason) = judge(&filename, Some(&content_type), Some(&filename)) {
            prop_assert!(!reason.contains("secret"), "{}", reason);
        }
    }
}
