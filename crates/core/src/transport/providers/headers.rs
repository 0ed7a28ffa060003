//! The headers that mailroom adds to each mail. Pure.

use super::{Message, mailbox};

/// The header with the `message_id`, where the provider allows us to set one, so that a receiver can recognize
/// duplicates.
const MESSAGE_ID: &str = "X-Mailroom-Message-ID";
/// Suppresses automatic replies (RFC 3834).
const AUTO_SUBMITTED: (&str, &str) = ("Auto-Submitted", "auto-generated");
/// The original recipients of a mail that `mailroom.redirect_to` redirects.
const ORIGINAL_TO: &str = "X-Original-To";
/// Maximum bytes of the addresses in it: SES accepts a header of 995, and encoded words are longer than their text.
const ORIGINAL_TO_BYTES: usize = 500;

/// Names and values in ASCII, in addition to those that a provider makes from the fields of the mail. The mail was
/// checked.
pub fn all(message: &Message) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        (MESSAGE_ID, message.message_id.clone()),
        (AUTO_SUBMITTED.0, AUTO_SUBMITTED.1.to_owned()),
    ];
    if !message.original_recipients.is_empty() {
        headers.push((ORIGINAL_TO, original_to(&message.original_recipients)));
    }
    headers
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
    if text.is_ascii() {
        text
    } else {
        mailbox::encode(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn original(addresses: &[String]) -> String {
        let mut message = fixture::plain(1);
        message.recipients = addresses.to_vec();
        message.redirect("dev@example.com".to_owned());
        all(&message)[2].1.clone()
    }

    #[test]
    fn mail_that_is_not_redirected_has_no_word_of_it() {
        let message = fixture::message();
        let headers = [
            ("X-Mailroom-Message-ID", message.message_id.clone()),
            ("Auto-Submitted", "auto-generated".to_owned()),
        ];
        assert_eq!(all(&message), headers);
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
