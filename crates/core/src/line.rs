//! Text of one line, such as a subject, a login or an address: the characters that it must not have, and how an error
//! shows it. Pure.
//!
//! A line break in such text would begin another line of a header or a log. A character that no reader sees makes two
//! texts look like one. The properties are those of Unicode 17.

use std::borrow::Cow;
use std::fmt;

/// Whether this is a control character: C0, DEL, C1, or one of Unicode's separators of lines and paragraphs.
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether a reader does not see this character: the property `Default_Ignorable_Code_Point`. It includes all
/// characters that change the direction of text.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The first control character of a text.
pub fn first_control(text: &str) -> Option<char> {
    text.chars().find(|c| is_control(*c))
}

/// Whether an error must not show this character as it is.
fn is_hidden(c: char) -> bool {
    is_control(c) || is_invisible(c) || (c.is_whitespace() && c != ' ')
}

/// A character as an error names it: quoted, or as `U+200B` if a reader would not see it.
#[derive(Clone, Copy, Debug)]
pub struct Named(pub char);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_hidden(self.0) {
            write!(f, "U+{:04X}", u32::from(self.0))
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// The text with each control character, invisible character and blank other than a space as in `<U+200B>`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            shown.push_str(&format!("<{}>", Named(c)));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The beginning of a text in quotes, made [`visible`], with `...` if it has more than `most` characters.
pub fn quoted(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    let dots = if end.is_some() { "..." } else { "" };
    let shown = visible(&text[..end.unwrap_or(text.len())]);
    format!("\"{shown}{dots}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_those_of_unicode_and_the_separators() {
        for c in [
            '\0', '\t', '\n', '\r', '\x1f', '\x7f', '\u{80}', '\u{85}', '\u{9f}', '\u{2028}',
            '\u{2029}',
        ] {
            assert!(is_control(c), "{c:?}");
        }
        for c in [
            ' ', '~', '\u{a0}', '\u{ad}', 'ü', '\u{200b}', '\u{2027}', '\u{202a}',
        ] {
            assert!(!is_control(c), "{c:?}");
        }
        assert_eq!(first_control("Hello\u{85}x\n"), Some('\u{85}'));
        assert_eq!(first_control("Grüße 日本"), None);
    }

    #[test]
    fn characters_that_set_the_direction_or_join_are_invisible() {
        for c in [
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{e0041}',
        ] {
            assert!(is_invisible(c), "{c:?}");
        }
        for c in [
            'a', 'ü', 'ａ', '\u{301}', '\u{2010}', '\u{3000}', '\u{fffd}', '😀',
        ] {
            assert!(!is_invisible(c), "{c:?}");
        }
        // The property has 4,174 characters.
        let all = ('\0'..=char::MAX).filter(|c| is_invisible(*c)).count();
        assert_eq!(all, 4174);
    }

    #[test]
    fn an_error_shows_no_character_that_a_reader_does_not_see() {
        assert_eq!(visible("ada@example.com"), "ada@example.com");
        assert_eq!(
            visible("\u{200b}ada\n@exam\u{ad}ple.com "),
            "<U+200B>ada<U+000A>@exam<U+00AD>ple.com "
        );
        assert_eq!(Named('\u{e0041}').to_string(), "U+E0041");
        assert_eq!(Named('\u{3000}').to_string(), "U+3000");
        assert_eq!(Named('<').to_string(), "'<'");
        assert_eq!(quoted("Grüße", 5), "\"Grüße\"");
        assert_eq!(quoted("Grüße\n", 5), "\"Grüße...\"");
        assert_eq!(quoted("a\u{202e}b", 2), "\"a<U+202E>...\"");
    }
}
