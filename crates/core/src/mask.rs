//! Masking what could be a secret (invariant I7) or an address in text for logs. Pure.

/// Minimum characters of a token, a word of letters, digits, `-` and `_`: a signed token has 86.
const TOKEN_MIN: usize = 32;
/// Minimum digits of a code: those of mailroom have five.
const CODE_MIN: usize = 5;

/// Masks the text of an error, which may quote a row: addresses, and all that [`mask`] masks if there is a link or a token. A
/// number alone is no secret, and may be the point.
pub fn mask_error(text: &str) -> String {
    let masked = mask(text);
    if masked.contains("[token]") || masked.contains("[link]") {
        mask_addresses(&masked)
    } else {
        mask_addresses(text)
    }
}

/// Masks each word with an @ in it. An address of an account has neither spaces nor control characters, but may have any
/// other, so what is around it goes too.
fn mask_addresses(text: &str) -> String {
    let ends_word = |c: char| c == ' ' || c.is_ascii_control();
    let mut masked = String::with_capacity(text.len());
    for part in text.split_inclusive(ends_word) {
        let word = part.trim_end_matches(ends_word);
        if word.trim_matches('@').contains('@') {
            masked.push_str("[address]");
            masked.push_str(&part[word.len()..]);
        } else {
            masked.push_str(part);
        }
    }
    masked
}

/// Masks links, tokens and codes.
pub fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let ends_link = |c: char| c.is_whitespace() || c.is_control() || "<>\"'()".contains(c);
    for part in text.split_inclusive(ends_link) {
        let end = part.chars().next_back().filter(|c| ends_link(*c));
        let word = end.map_or(part, |end| &part[..part.len() - end.len_utf8()]);
        match word.find("://") {
            Some(at) => {
                let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                let before = word[..at].trim_end_matches(is_scheme);
                mask_words(before, &mut masked);
                masked.push_str("[link]");
            }
            None => mask_words(word, &mut masked),
        }
        masked.extend(end);
    }
    masked
}

/// Masks tokens and codes in text without links.
fn mask_words(text: &str, masked: &mut String) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let is_of_one = is_token(c);
        let end = rest.find(|c| is_token(c) != is_of_one);
        let (run, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if !is_of_one {
            masked.push_str(run);
        } else if run.len() >= TOKEN_MIN {
            masked.push_str("[token]");
        } else {
            mask_codes(run, masked);
        }
    }
}

fn mask_codes(run: &str, masked: &mut String) {
    let mut rest = run;
    while let Some(c) = rest.chars().next() {
        let is_number = c.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_number);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if is_number && part.len() >= CODE_MIN {
            masked.push_str("[code]");
        } else {
            masked.push_str(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_quotes_a_row_shows_no_secret_of_it() {
        let token = "Ab-_".repeat(22);
        let row = format!(
            "refused: (1,\"{{\"\"code\"\": \"\"12345\"\", \"\"token\"\": \"\"{token}\"\"}}\")"
        );
        let expected =
            "refused: (1,\"{\"\"code\"\": \"\"[code]\"\", \"\"token\"\": \"\"[token]\"\"}\")";
        assert_eq!(mask_error(&row), expected);
        let plain = "could not resize segment to 536870912 bytes";
        assert_eq!(mask_error(plain), plain);
    }

    #[test]
    fn an_error_that_quotes_a_row_shows_no_address_of_it() {
        for (said, expected) in [
            ("a@example.com is blocked", "[address] is blocked"),
            (
                "refused:\t\"o'b,c@d.example\"\nfor",
                "refused:\t[address]\nfor",
            ),
            ("(1,{Ä@ü.example},x y,z)", "[address] y,z)"),
            (
                "no operator text @> text, @@ or @",
                "no operator text @> text, @@ or @",
            ),
        ] {
            assert_eq!(mask_error(said), expected);
        }
    }
}
