//! The test `plain_name`: whether a mail may repeat a name that a stranger chose.
//!
//! Anyone may sign up with the address of another person and a login of their own, and the mail goes to that person.
//! So the built-in templates greet by a login only if it cannot be a message: it is short, and without the characters
//! that make an address of the web, a telephone number, a sentence or markup.

use minijinja::Value;

/// Maximum characters of a plain name.
const NAME_MAX: usize = 32;
/// Maximum digits of a plain name: the shortest telephone numbers that mail clients turn into links have more.
const DIGITS_MAX: usize = 4;

/// Whether a value is text of at most [`NAME_MAX`] characters: letters of any script, up to [`DIGITS_MAX`] digits, `_`,
/// `-`, apostrophes, and single spaces between words. There is no dot, because mail clients turn `evil.example` into a
/// link.
pub fn is_plain_name(value: &Value) -> bool {
    value.as_str().is_some_and(|name| {
        name.chars().count() <= NAME_MAX
            && name.chars().filter(|c| c.is_numeric()).count() <= DIGITS_MAX
            && name.split(' ').all(|word| {
                !word.is_empty()
                    && word
                        .chars()
                        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '\'' | '’'))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_if_it_cannot_be_a_message() {
        for plain in [
            "a",
            "ada",
            "ada_1985",
            "jean-luc o'neill",
            "jürgen",
            "李小龍",
            "мария",
            &"x".repeat(32),
        ] {
            assert!(is_plain_name(&Value::from(plain)), "{plain}");
        }
        for other in [
            "",
            " ",
            " ada",
            "ada ",
            "ada  lovelace",
            "winner! claim 500 eur at https://evil.example/claim now.",
            "evil.example",
            "evil。example",
            "ada@example.com",
            "call +49",
            "call 0900 12345",
            "<b>ada</b>",
            "ada\nlovelace",
            "ada\u{2028}lovelace",
            "ada\u{a0}lovelace",
            "ada\u{202e}evol",
            &"x".repeat(33),
        ] {
            assert!(!is_plain_name(&Value::from(other)), "{other}");
        }
        for no_text in [
            Value::UNDEFINED,
            Value::from(()),
            Value::from(7),
            Value::from(vec!["ada"]),
        ] {
            assert!(!is_plain_name(&no_text), "{no_text:?}");
        }
    }
}
