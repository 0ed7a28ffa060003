//! Text in headers, as encoded words (RFC 2047). Pure.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Maximum bytes of text in an encoded word. It has 60 characters then: fewer than the 75 that RFC 2047 allows, so that a
/// line with the name of the header and one word stays within the 76 that it allows.
const WORD_BYTES: usize = 36;
/// How an encoded word of ours begins.
const WORD: &str = "=?UTF-8?B?";

/// Text as encoded words (RFC 2047), separated by spaces.
pub fn encode(name: &str) -> String {
    let mut words = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let mut end = rest.len().min(WORD_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (word, after) = rest.split_at(end);
        words.push(format!("{WORD}{}?=", STANDARD.encode(word.as_bytes())));
        rest = after;
    }
    // White space between encoded words is not part of the text.
    words.join(" ")
}

/// The text itself if a reader cannot mistake it for encoded words and folding cannot change its spaces; otherwise
/// encoded words.
pub fn text(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && !text.contains("=?")
        && !text.contains("  ")
        && text.trim().len() == text.len();
    if is_plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(encode(text))
    }
}
