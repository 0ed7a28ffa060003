//! The headers that mailroom adds to each mail. Pure.

use super::mailbox::Ready;
use crate::transport::encode::encode;

/// The header with the `message_id`, where the provider allows us to set one, so that a receiver can recognize
/// duplicates.
const MESSAGE_ID: &str = "X-Mailroom-Message-ID";
/// Suppresses automatic replies (RFC 3834).
const AUTO_SUBMITTED: (&str, &str) = ("Auto-Submitted", "auto-generated");
/// The original recipients of a mail that `mailroom.redirect_to` redirects.
const ORIGINAL_TO: &str = "X-Original-To";
/// Where a click unsubscribes, and that it is a POST (RFC 8058).
const LIST_UNSUBSCRIBE: &str = "List-Unsubscribe";
const ONE_CLICK: (&str, &str) = ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
/// Maximum bytes of the addresses in it: SES accepts a header of 995, and encoded words are longer than their text.
const ORIGINAL_TO_BYTES: usize = 500;

/// Names and values in ASCII, in addition to those that a provider makes from the fields of the mail.
pub fn all(ready: &Ready<'_>) -> Vec<(String, String)> {
    let message = ready.message;
    let mut headers = vec![(MESSAGE_ID, message.message_id.clone())];
    let is_own = |name: &str| {
        let mut own = ready.headers.iter();
        own.any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    if !is_own(AUTO_SUBMITTED.0) {
        headers.push((AUTO_SUBMITTED.0, AUTO_SUBMITTED.1.to_owned()));
    }
    if !message.original_recipients.is_empty() {
        headers.push((ORIGINAL_TO, original_to(&message.original_recipients)));
    }
    if let Some(url) = &message.unsubscribe_url {
        headers.push((LIST_UNSUBSCRIBE, format!("<{url}>")));
        headers.push((ONE_CLICK.0, ONE_CLICK.1.to_owned()));
    }
    let headers = headers.into_iter();
    let headers = headers.map(|(name, value)| (name.to_owned(), value));
    headers.chain(ready.headers.iter().cloned()).collect()
}

/// The addresses that fit, and the number of the others.
fn original_to(addresses: &[String]) -> String {
    let mut text = String::new();
    for (place, address) in addresses.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        if text.len() + separator.len() + address.len() > ORIGINAL_TO_BYTES {
            text.push_str(&format!(" and {} more", addresses.len() - place));
            break;
        }
        text.push_str(separator);
        text.push_str(address);
    }
    if text.is_ascii() { text } else { encode(&text) }
}

#[cfg(test)]
mod tests {
    use super::super::{Message, fixture};
    use super::*;

    fn original(addresses: &[String]) -> String {
        let mut message = fixture::plain(1);
        message.recipients = addresses.to_vec();
        message.redirect("dev@example.com".to_owned());
        all(&Ready::new(&message, 1).unwrap())[2].1.clone()
    }

    #[test]
    fn mail_that_is_not_redirected_has_no_word_of_it() {
        let message = fixture::message();
        let headers = [
            ("X-Mailroom-Message-ID", message.message_id.as_str()),
            ("Auto-Submitted", "auto-generated"),
        ];
        assert_eq!(of(&message), headers.map(owned));
    }

    fn owned((name, value): (&str, &str)) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn of(message: &Message) -> Vec<(String, String)> {
        all(&Ready::new(message, 9).unwrap())
    }

    #[test]
    fn the_applications_headers_come_last_and_may_replace_auto_submitted() {
        let mut message = fixture::message();
        message.unsubscribe_url = Some("https://example.com/u?t=1".to_owned());
        message.headers = Some(r#"{"X-Order": "7", "auto-submitted": "no"}"#.to_owned());
        let headers = [
            ("X-Mailroom-Message-ID", message.message_id.as_str()),
            ("List-Unsubscribe", "<https://example.com/u?t=1>"),
            ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
            ("X-Order", "7"),
            ("auto-submitted", "no"),
        ];
        let mut found = of(&message);
        found[3..].sort();
        assert_eq!(found, headers.map(owned));
    }

    #[test]
    fn what_was_inserted_by_hand_is_judged_again() {
        let refused = |change: fn(&mut Message)| {
            let mut message = fixture::message();
            change(&mut message);
            Ready::new(&message, 9).err().unwrap()
        };
        let bcc = refused(|m| m.headers = Some(r#"{"Bcc": "a@example.com"}"#.to_owned()));
        assert_eq!(bcc, "headers \"Bcc\" is not a name that a message may set");
        assert_eq!(
            refused(|m| m.headers = Some("{".to_owned())),
            "headers is no JSON"
        );
        let url = refused(|m| m.unsubscribe_url = Some("https://a>\r\nBcc: b@c".to_owned()));
        assert!(url.starts_with("unsubscribe_url has "), "{url}");
    }

    #[test]
    fn the_original_recipients_are_one_header() {
        let addresses = |count| (0..count).map(|i| format!("r{i:02}@example.com")).collect();
        let two: Vec<String> = addresses(2);
        assert_eq!(original(&two), "r00@example.com, r01@example.com");
        let many: Vec<String> = addresses(100);
        let header = original(&many);
        assert!(header.len() < 600);
        assert!(header.ends_with("r28@example.com and 71 more"), "{header}");
        let beyond = vec!["zoë@example.com".to_owned(); 100];
        let header = original(&beyond);
        assert!(header.is_ascii() && header.len() <= 995, "{header}");
        assert!(header.starts_with("=?UTF-8?B?"));
    }
}
