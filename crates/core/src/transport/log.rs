//! Makes a log line of a message instead of sending it: for development. Pure.
//!
//! Links, tokens and codes are masked (invariant I7).

use super::delivered::Delivered;
use super::plain;
use super::providers::MessageOutcome;
use crate::attachment::Attachment;
use crate::line;
use crate::mask::mask;
use crate::message::Message;

/// Maximum characters of the body.
const SHOWN: usize = 200;

/// Delivers a message as a line, which the caller writes to the log.
pub fn deliver(message: &Message) -> (Delivered, String) {
    let sent = MessageOutcome::Sent { provider_id: None };
    (Delivered::decided(sent, None), line(message))
}

fn line(message: &Message) -> String {
    let body = match message.body_text.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => mask(text),
        None => mask(&plain::from_html(
            message.body_html.as_deref().unwrap_or(""),
        )),
    };
    let lists = [&message.recipients, &message.cc, &message.bcc];
    let recipients: Vec<&str> = lists.into_iter().flatten().map(String::as_str).collect();
    let redirected = match message.original_recipients.as_slice() {
        [] => String::new(),
        original => format!(" instead of {}", original.join(", ")),
    };
    let from = message.from_address.as_deref();
    let from = from.map_or_else(String::new, |from| format!(" from {from}"));
    let line = format!(
        "mail {} ({}){from} to {}{redirected}{}: \"{}\": {}",
        message.message_id,
        message.kind,
        recipients.join(", "),
        files(message),
        mask(&message.subject),
        one_line(&body).chars().take(SHOWN).collect::<String>()
    );
    one_line(&line)
}

/// The names and sizes of the files.
fn files(message: &Message) -> String {
    let one = |file: &Attachment| {
        let (name, size) = (mask(&file.filename), file.content.len());
        format!("{name} ({size} bytes)")
    };
    let files: Vec<String> = message.attachments.iter().map(one).collect();
    if files.is_empty() {
        return String::new();
    }
    format!(" with {}", files.join(", "))
}

/// Replaces white space and control characters by single spaces.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || line::is_control(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::providers::fixture;
    use proptest::prelude::*;

    #[test]
    fn what_a_line_says() {
        let mut message = fixture::message();
        message.subject = "Your code is 01234".to_owned();
        let token = "Ab-_".repeat(22);
        message.body_text = Some(format!(
            "Hello Ada,\r\n\r\nopen <https://example.com/x?t=1>\tor(see HTTP://b.example/y): {}\n12345, a54321b, 2026. {}",
            &token[..86],
            "x ".repeat(200)
        ));
        let (delivered, line) = deliver(&message);
        assert_eq!(
            delivered.outcome,
            MessageOutcome::Sent { provider_id: None }
        );
        let expected = "mail 0f8fad5b-d9cb-469f-a165-70867728950e (reminder) to ada@example.com, grace@example.com, \
            alan@example.com: \"Your code is [code]\": Hello Ada, open <[link]> or(see [link]): [token] [code], a[code]b, 2026. x x";
        assert!(line.starts_with(expected), "{line}");
        assert!(line.len() < expected.len() + 200);
        message.attachments = fixture::files();
        message.attachments[1].filename = "12345.png".to_owned();
        let files = "alan@example.com with Rechnung \"für\" Zoë 📎.pdf (12 bytes), [code].png (6 bytes): \"";
        assert!(
            deliver(&message).1.contains(files),
            "{}",
            deliver(&message).1
        );
        message.body_text = None;
        message.body_html = Some("<a href='https://example.com/t'>Go</a> 12345".to_owned());
        assert!(deliver(&message).1.ends_with(": Go ([link]) [code]"));
    }

    proptest! {
        #[test]
        fn no_secret_is_shown(
            before in "(.|\r|\n){0,30}",
            after in "(.|\r|\n){0,30}",
            token in "[A-Za-z0-9_-]{86}",
            code in "[0-9]{5}",
        ) {
            let mut message = fixture::plain(1);
            message.subject = format!("{before}{code}{after}{token}");
            let link = format!("https://example.com/{token}");
            message.body_text = Some(format!("{before}{token}{after}{code}\n{link}{before}{code} {link}"));
            let line = deliver(&message).1;
            prop_assert!(!line.contains(&token) && !line.contains("https:"));
            prop_assert!(!line.contains(&token[..32]));
            prop_assert!(!line.chars().any(char::is_control));
            let shown = line.split_once("to a").unwrap().1;
            prop_assert!(!shown.contains(&code));
        }
    }
}
