//! Messages with files.

use super::*;
use crate::attachment;
use bytes::Bytes;
use mail_parser::{Message as Parsed, MessagePart};

/// A file of this name; with a content id if it is an image.
fn named(filename: &str, content: &'static [u8]) -> Attachment {
    Attachment {
        filename: filename.to_owned(),
        content_type: attachment::judge(filename, None, None).unwrap(),
        content_id: filename.strip_suffix(".png").map(str::to_owned),
        content: Bytes::from_static(content),
    }
}

/// The types of a part and of those in it, as `mixed[plain, pdf]`.
fn shape(read: &Parsed<'_>, id: u32) -> String {
    let part = &read.parts[id as usize];
    let subtype = part.content_type().unwrap().subtype().unwrap().to_owned();
    match &part.body {
        PartType::Multipart(ids) => {
            let parts: Vec<String> = ids.iter().map(|id| shape(read, *id)).collect();
            format!("{subtype}[{}]", parts.join(", "))
        }
        _ => subtype,
    }
}

/// The part with this subtype.
fn part_of<'a>(read: &'a Parsed<'_>, subtype: &str) -> &'a MessagePart<'a> {
    let is_it = |part: &&MessagePart<'_>| part.content_type().unwrap().subtype() == Some(subtype);
    read.parts.iter().find(is_it).unwrap()
}

#[test]
fn each_combination_has_its_shape() {
    let both = [Some("text"), Some("<p>HTML</p>")];
    let text = [Some("text"), None];
    // Without a text that could be made of it.
    let html = [None, Some("<img src=x>")];
    for (bodies, files, expected) in [
        (both, "", "alternative[plain, html]"),
        (both, "a.pdf", "mixed[alternative[plain, html], pdf]"),
        (both, "a.png", "alternative[plain, related[html, png]]"),
        (
            both,
            "a.png b.pdf c.png d.zip",
            "mixed[alternative[plain, related[html, png, png]], pdf, zip]",
        ),
        (text, "a.pdf b.pdf", "mixed[plain, pdf, pdf]"),
        // There is nothing that shows it.
        (text, "a.png", "mixed[plain, png]"),
        (html, "a.pdf", "mixed[html, pdf]"),
        (html, "a.png", "related[html, png]"),
        (html, "a.png b.pdf", "mixed[related[html, png], pdf]"),
    ] {
        let mut message = fixture::plain(1);
        [message.body_text, message.body_html] = bodies.map(|body| body.map(str::to_owned));
        let files = files.split_whitespace();
        message.attachments = files.map(|name| named(name, b"content")).collect();
        let bytes = bytes(&message);
        let read = MessageParser::default().parse(&bytes).unwrap();
        assert_eq!(shape(&read, 0), expected);
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let message = fixture::with_files();
    let bytes = bytes(&message);
    assert!(bytes.is_ascii());
    let read = MessageParser::default().parse(&bytes).unwrap();
    for (file, subtype) in message.attachments.iter().zip(["pdf", "png"]) {
        let part = part_of(&read, subtype);
        let content_type = part.content_type().unwrap();
        let disposition = part.content_disposition().unwrap();
        assert_eq!(
            disposition.attribute("filename"),
            Some(file.filename.as_str())
        );
        assert!(content_type.attribute("name").is_some(), "{subtype}");
        assert_eq!(disposition.ctype(), file.disposition());
        assert_eq!(part.content_id(), file.content_id.as_deref());
        assert_eq!(part.contents(), &file.content[..]);
    }
    let text = String::from_utf8(bytes).unwrap();
    for line in [
        "Content-Type: application/pdf; name=\"=?UTF-8?B?UmVjaG51bmcgImbDvHIiIFpvw6sg8J+Tji5wZGY=?=\"\r\n",
        "Content-Disposition: attachment; filename*=UTF-8''",
        "Content-ID: <logo@example.com>\r\n",
        "Content-Type: image/png; name=\"logo.png\"\r\n",
        "Content-Disposition: inline; filename=\"logo.png\"\r\n",
    ] {
        let is_there = text.contains(line) || text.replace("\r\n ", " ").contains(line);
        assert!(is_there, "{line}: {text}");
    }
    assert_eq!(
        text.matches("Content-Transfer-Encoding: base64\r\n")
            .count(),
        2
    );
    assert!(text.contains("\r\nJVBERi0xLjcNCgD/\r\n"), "{text}");
}

#[test]
fn a_type_keeps_its_parameters() {
    let mut message = fixture::plain(1);
    message.attachments = vec![named("invite.ics", b"BEGIN:VCALENDAR\r\n")];
    let invite = "text/calendar; method=REQUEST; charset=utf-8";
    message.attachments[0].content_type = invite.to_owned();
    let bytes = bytes(&message);
    let read = MessageParser::default().parse(&bytes).unwrap();
    let content_type = part_of(&read, "calendar").content_type().unwrap();
    assert_eq!(content_type.attribute("method"), Some("REQUEST"));
    assert_eq!(content_type.attribute("charset"), Some("utf-8"));
    assert_eq!(content_type.attribute("name"), Some("invite.ics"));
}

#[test]
fn base64_has_lines_of_76_characters() {
    let mut message = fixture::plain(1);
    let mut file = named("a.bin", b"");
    file.content = (0..1_000_u32).map(|number| number as u8).collect();
    message.attachments = vec![file.clone()];
    let bytes = bytes(&message);
    let text = std::str::from_utf8(&bytes).unwrap();
    let (_, encoded) = text.split_once("base64\r\n\r\n").unwrap();
    let lines: Vec<usize> = encoded.split("\r\n").map(str::len).take(18).collect();
    assert_eq!(lines, [[76; 17].as_slice(), &[44]].concat());
    let read = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(part_of(&read, "octet-stream").contents(), &file.content[..]);
}

/// Names that are valid, most of them odd.
fn any_filename() -> impl Strategy<Value = String> {
    let stem = prop_oneof![
        "[a-z]{1,12}",
        "[a-z ]{1,240}",
        "[a-z]{150,240}",
        "[ü😀]{1,60}",
        "([ -.0-\\[\\]-~]|é|日){1,40}",
        "[\"';%*=?<>()]{1,20}",
    ];
    stem.prop_map(|stem| format!("{stem}.pdf"))
        .prop_filter("too long", |name| name.len() <= 255)
}

proptest! {
    #[test]
    fn files_are_read_as_they_were_written(
        files in proptest::collection::vec((any_filename(), proptest::collection::vec(any::<u8>(), 0..200)), 1..4),
        has_html in any::<bool>(),
    ) {
        let mut message = fixture::plain(1);
        if !has_html {
            message.body_html = None;
        }
        let attach = |(index, (filename, content)): (usize, &(String, Vec<u8>))| Attachment {
            filename: filename.clone(),
            content_type: "application/pdf".to_owned(),
            content_id: (index == 1).then(|| "shown".to_owned()),
            content: content.clone().into(),
        };
        message.attachments = files.iter().enumerate().map(attach).collect();
        let bytes = bytes(&message);
        prop_assert!(bytes.is_ascii() && check_lines(&bytes).is_ok());
        let read = MessageParser::default().parse(&bytes).unwrap();
        let is_file = |part: &&MessagePart<'_>| part.content_type().unwrap().subtype() == Some("pdf");
        let mut found: Vec<(String, Vec<u8>)> = read
            .parts
            .iter()
            .filter(is_file)
            .map(|part| {
                let disposition = part.content_disposition().unwrap();
                (disposition.attribute("filename").unwrap().to_owned(), part.contents().to_vec())
            })
            .collect();
        let mut expected = files.clone();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
    }
}
