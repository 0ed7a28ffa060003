//! Lower case for addresses and logins, as they are stored and compared: that of Unicode's root locale, independent of
//! the locale of the database.
//!
//! SQL's lower() follows the locale. A Turkish one converts `INFO@EXAMPLE.COM` to `ınfo@example.com`, which is another
//! mailbox, and the C locale does not convert letters beyond ASCII. The root locale uses Unicode's full mapping: a
//! sigma at the end of a word becomes a final sigma; `İ` becomes `i` with a combining dot, which differs from the `i`
//! of another address. Folding a result again does not change it.

use std::borrow::Cow;

use pgrx::prelude::*;

use crate::pg::encoding;

/// Returns `text` in lower case, in its own encoding, in which ASCII bytes must mean ASCII. Folds only ASCII letters
/// if the text cannot be converted to UTF-8. Keeps a letter whose lower case does not exist in the encoding.
fn lower_case<'a>(
    text: &'a [u8],
    to_utf8: impl for<'b> Fn(&'b [u8]) -> Option<Cow<'b, str>>,
    from_utf8: impl for<'b> Fn(&'b str) -> Option<Cow<'b, [u8]>>,
) -> Cow<'a, [u8]> {
    let ascii = if text.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    };
    if text.is_ascii() {
        return ascii;
    }
    let Some(read) = to_utf8(&ascii) else {
        return ascii;
    };
    let lower = read.to_lowercase();
    // Some encodings have two forms of a character; text that needs no folding keeps its bytes.
    if lower == *read {
        drop(read);
        return ascii;
    }
    if let Some(written) = from_utf8(&lower) {
        return Cow::Owned(written.into_owned());
    }
    let mut lower = String::with_capacity(read.len());
    for character in read.chars() {
        let before = lower.len();
        lower.extend(character.to_lowercase());
        if from_utf8(&lower[before..]).is_none() {
            lower.truncate(before);
            lower.push(character);
        }
    }
    match from_utf8(&lower) {
        Some(written) => Cow::Owned(written.into_owned()),
        None => {
            drop(read);
            ascii
        }
    }
}

/// Returns text of the database in lower case. In SQL_ASCII, only ASCII letters are folded.
pub fn fold(text: &[u8]) -> Cow<'_, [u8]> {
    lower_case(
        text,
        |text| encoding::is_known().then(|| encoding::to_utf8(text))?,
        encoding::from_utf8,
    )
}

#[pg_extern(sql = false)]
fn _fold(value: &[u8]) -> Vec<u8> {
    fold(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf8(text: &str) -> String {
        let folded = lower_case(
            text.as_bytes(),
            |text| std::str::from_utf8(text).ok().map(Cow::Borrowed),
            |text| Some(Cow::Borrowed(text.as_bytes())),
        );
        String::from_utf8(folded.into_owned()).unwrap()
    }

    /// ISO 8859-9, which has `İ` but no combining dot.
    fn latin5(text: &[u8]) -> Vec<u8> {
        const PAIRS: [(u8, char); 6] = [
            (0xDD, 'İ'),
            (0xFD, 'ı'),
            (0xD0, 'Ğ'),
            (0xF0, 'ğ'),
            (0xDE, 'Ş'),
            (0xFE, 'ş'),
        ];
        let read = |text: &[u8]| -> String {
            let character = |byte: u8| {
                let pair = PAIRS.iter().find(|pair| pair.0 == byte);
                pair.map_or(char::from(byte), |pair| pair.1)
            };
            text.iter().map(|byte| character(*byte)).collect()
        };
        let write = |text: &str| -> Option<Vec<u8>> {
            let byte = |character: char| {
                let pair = PAIRS.iter().find(|pair| pair.1 == character);
                pair.map_or(u8::try_from(u32::from(character)).ok(), |pair| Some(pair.0))
            };
            text.chars().map(byte).collect()
        };
        lower_case(
            text,
            |text| Some(Cow::Owned(read(text))),
            |text| write(text).map(Cow::Owned),
        )
        .into_owned()
    }

    #[test]
    fn ascii_is_folded_as_everywhere() {
        assert_eq!(utf8(""), "");
        assert_eq!(utf8("INFO@EXAMPLE.COM"), "info@example.com");
        assert_eq!(utf8("@[`{~\u{7f}09"), "@[`{~\u{7f}09");
        let plain = b"info@example.com";
        let same = lower_case(plain, |_| panic!("not read"), |_| panic!("not written"));
        assert!(matches!(same, Cow::Borrowed(_)));
    }

    #[test]
    fn letters_beyond_ascii_follow_the_root_locale() {
        assert_eq!(utf8("MÜLLER"), "müller");
        // Turkish would have `ı`; Lithuanian would add a dot.
        assert_eq!(utf8("ÏI"), "ïi");
        assert_eq!(utf8("Ì"), "ì");
        assert_eq!(utf8("ı"), "ı");
        assert_eq!(utf8("İ"), "i\u{307}");
        assert_ne!(utf8("İNFO@EXAMPLE.COM"), utf8("INFO@EXAMPLE.COM"));
        // Both spellings of a name that ends in sigma fold to the same text.
        assert_eq!(utf8("ΝΊΚΟΣ"), "νίκος");
        assert_eq!(utf8("Νίκος"), "νίκος");
        assert_eq!(utf8("ẞ ß K Å"), "ß ß k å");
    }

    #[test]
    fn what_is_folded_stays() {
        for character in ('\0'..=char::MAX).filter(|character| !character.is_ascii()) {
            let once = utf8(&character.to_string());
            assert_eq!(utf8(&once), once, "{character:?}");
            let once = utf8(&format!("A{character}B {character}"));
            assert_eq!(utf8(&once), once, "{character:?}");
        }
        let once = latin5(b"\xC7\xDD\xC7EK \xD0");
        assert_eq!(latin5(&once), once);
    }

    #[test]
    fn what_an_encoding_lacks_stays_as_it_is() {
        // ÇİÇEK: all letters are folded except the one whose lower case ISO 8859-9 does not have.
        assert_eq!(latin5(b"\xC7\xDD\xC7EK \xD0"), b"\xE7\xDD\xE7ek \xF0");
        assert_eq!(latin5(b"\xC7I\xDE"), b"\xE7i\xFE");
        let unread = lower_case(b"A\xC4", |_| None, |_| panic!("not written"));
        assert_eq!(&*unread, b"a\xC4");
    }

    #[test]
    fn what_needs_no_folding_keeps_its_bytes() {
        // The character is not replaced by its other form.
        let kept = lower_case(
            b"A\xFF",
            |text| {
                Some(Cow::Owned(
                    String::from_utf8_lossy(text).replace('\u{fffd}', "漢"),
                ))
            },
            |_| Some(Cow::Owned(b"a\xFE".to_vec())),
        );
        assert_eq!(&*kept, b"a\xFF");
    }
}
