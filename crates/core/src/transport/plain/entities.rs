//! HTML's character references. Pure.

/// Maximum bytes of a reference between `&` and `;`.
const LONGEST: usize = 10;

/// U+00A0 to U+00FF, in their order.
const LATIN: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf",
    "laquo", "not", "shy", "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro",
    "para", "middot", "cedil", "sup1", "ordm", "raquo", "frac14", "frac12", "frac34", "iquest",
    "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig", "Ccedil", "Egrave", "Eacute",
    "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve", "Oacute",
    "Ocirc", "Otilde", "Ouml", "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute",
    "THORN", "szlig", "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil",
    "egrave", "eacute", "ecirc", "euml", "igrave", "iacute", "icirc", "iuml", "eth", "ntilde",
    "ograve", "oacute", "ocirc", "otilde", "ouml", "divide", "oslash", "ugrave", "uacute", "ucirc",
    "uuml", "yacute", "thorn", "yuml",
];

/// Other names that mail templates use.
const OTHERS: [(&str, char); 35] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("OElig", 'Œ'),
    ("oelig", 'œ'),
    ("Scaron", 'Š'),
    ("scaron", 'š'),
    ("ensp", ' '),
    ("emsp", ' '),
    ("thinsp", ' '),
    ("zwnj", '\u{200c}'),
    ("zwj", '\u{200d}'),
    ("ndash", '–'),
    ("mdash", '—'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("sbquo", '‚'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("bdquo", '„'),
    ("bull", '•'),
    ("hellip", '…'),
    ("permil", '‰'),
    ("lsaquo", '‹'),
    ("rsaquo", '›'),
    ("euro", '€'),
    ("trade", '™'),
    ("larr", '←'),
    ("uarr", '↑'),
    ("rarr", '→'),
    ("darr", '↓'),
    ("minus", '−'),
    ("check", '✓'),
];

/// Replaces known references; anything else stays as it is.
pub(super) fn replace(text: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        replaced.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = rest
            .bytes()
            .take(LONGEST + 2)
            .position(|byte| byte == b';')
            .and_then(|end| Some((character(&rest[1..end])?, end + 1)));
        let (character, length) = known.unwrap_or(('&', 1));
        replaced.push(character);
        rest = &rest[length..];
    }
    replaced.push_str(rest);
    replaced
}

fn character(reference: &str) -> Option<char> {
    if let Some(number) = reference.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return code.ok().map(|code| {
            char::from_u32(code)
                .filter(|c| *c != '\0')
                .unwrap_or(char::REPLACEMENT_CHARACTER)
        });
    }
    if let Some(at) = LATIN.iter().position(|name| *name == reference) {
        return char::from_u32(0xa0 + u32::try_from(at).ok()?);
    }
    OTHERS
        .iter()
        .find(|(name, _)| *name == reference)
        .map(|(_, character)| *character)
}
