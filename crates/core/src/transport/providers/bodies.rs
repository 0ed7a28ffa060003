//! The bodies of a message as a provider receives them. Pure.
//!
//! An empty body counts as none. A message with HTML only gets a text made from it: spam filters count a missing text
//! against a message, and some mail clients show nothing else.

use std::borrow::Cow;

use super::Message;
use crate::transport::plain;

/// The text body: that of the message, or one made from its HTML, unless that is empty.
pub fn text(message: &Message) -> Option<Cow<'_, str>> {
    if let Some(text) = said(message.body_text.as_ref()) {
        return Some(Cow::Borrowed(text));
    }
    let text = plain::from_html(html(message)?);
    (!text.is_empty()).then_some(Cow::Owned(text))
}

/// The HTML body.
pub fn html(message: &Message) -> Option<&str> {
    said(message.body_html.as_ref())
}

/// Size in bytes of the subject and the bodies. A text that is to be made from HTML counts like the HTML.
pub fn bytes(message: &Message) -> usize {
    let made = match said(message.body_text.as_ref()) {
        Some(_) => 0,
        None => html(message).map_or(0, str::len),
    };
    message.content_bytes() + made
}

fn said(body: Option<&String>) -> Option<&str> {
    body.map(String::as_str).filter(|body| !body.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn with(text: Option<&str>, html: Option<&str>) -> Message {
        Message {
            body_text: text.map(str::to_owned),
            body_html: html.map(str::to_owned),
            ..fixture::plain(1)
        }
    }

    #[test]
    fn a_text_is_made_only_where_there_is_none() {
        let html = "<p>Dear Ada,</p><p>see &lt;you&gt;</p>";
        for none in [None, Some("")] {
            let message = with(none, Some(html));
            assert_eq!(text(&message).unwrap(), "Dear Ada,\n\nsee <you>\n");
        }
        let both = with(Some("Hello"), Some(html));
        assert_eq!(text(&both).unwrap(), "Hello");
        assert_eq!(text(&with(None, Some("<img src=x>"))), None);
        assert_eq!(text(&with(Some(""), None)), None);
    }

    #[test]
    fn an_empty_body_is_none() {
        let message = with(Some("Hello"), Some(""));
        assert_eq!(super::html(&message), None);
    }

    #[test]
    fn a_text_to_be_made_counts() {
        let subject = fixture::plain(1).subject.len();
        assert_eq!(bytes(&with(Some("12"), Some("345"))), subject + 5);
        assert_eq!(bytes(&with(None, Some("345"))), subject + 6);
    }
}
