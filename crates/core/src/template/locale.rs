//! Locales: in which order templates are looked for.
//!
//! A tag is that of BCP 47 (`zh-Hant-HK`) or the name of a POSIX locale (`pt_BR.UTF-8`, `sr_RS@latin`). The order is
//! that of RFC 4647, section 3.4, which drops the last subtag again and again, with one addition: a language that is
//! written in several scripts is looked for in the script that the region writes before it is looked for in any. A
//! reader in Hong Kong reads `zh-Hant`, which a tag `zh-HK` does not name.

use std::cmp::Reverse;

/// Maximum octets of a locale tag. BCP 47 (RFC 5646, section 4.4.1) needs 35.
const LOCALE_MAX: usize = 100;

/// A language with its likely script, and the regions that have another.
type Scripts = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

/// The living languages whose likely script depends on the region, by CLDR 47, `common/supplemental/likelySubtags.xml`,
/// in lower case.
const SCRIPTS: [Scripts; 15] = [
    ("az", "latn", &[("arab", &["iq", "ir"]), ("cyrl", &["ru"])]),
    ("ha", "latn", &[("arab", &["cm", "sd"])]),
    ("kk", "cyrl", &[("arab", &["af", "cn", "ir", "mn"])]),
    (
        "ku",
        "latn",
        &[
            ("arab", &["iq", "ir", "lb"]),
            ("cyrl", &["am", "az", "ge", "tm"]),
        ],
    ),
    ("ky", "cyrl", &[("arab", &["cn"]), ("latn", &["tr"])]),
    ("mn", "cyrl", &[("mong", &["cn"])]),
    ("ms", "latn", &[("arab", &["cc"])]),
    ("pa", "guru", &[("arab", &["pk"])]),
    ("sd", "arab", &[("deva", &["in"])]),
    ("sr", "cyrl", &[("latn", &["me", "ro", "tr"])]),
    ("tg", "cyrl", &[("arab", &["pk"])]),
    ("ug", "arab", &[("cyrl", &["kz", "mn"])]),
    ("uz", "latn", &[("arab", &["af"]), ("cyrl", &["cn"])]),
    ("yue", "hant", &[("hans", &["cn"])]),
    (
        "zh",
        "hans",
        &[(
            "hant",
            &[
                "au", "bn", "gb", "gf", "hk", "id", "mo", "pa", "pf", "ph", "sr", "th", "tw", "us",
                "vn",
            ],
        )],
    ),
];

/// The modifiers of POSIX locales that name a script. Others, such as `euro`, name none.
const MODIFIERS: [(&str, &str); 3] = [
    ("cyrillic", "cyrl"),
    ("devanagari", "deva"),
    ("latin", "latn"),
];

/// The locales in which to look for a template, best first: the requested one and those that are nearest to it, then
/// the default and those. Tags are compared in lower case, with hyphens. A tag of more than [`LOCALE_MAX`] octets is
/// ignored: the shorter forms take memory in proportion to the square of its length.
pub fn locales(wanted: Option<&str>, default: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let tags = wanted.into_iter().chain([default]);
    for tag in tags.filter(|tag| tag.len() <= LOCALE_MAX) {
        for near in nearest(&Subtags::of(tag)) {
            if !near.is_empty() && !found.contains(&near) {
                found.push(near);
            }
        }
    }
    found
}

/// A tag in lower case.
#[derive(Clone)]
struct Subtags {
    language: String,
    script: Option<String>,
    /// The region, variants and what else follows.
    rest: Vec<String>,
}

impl Subtags {
    /// Splits a tag of BCP 47 or the name of a POSIX locale, whose encoding is dropped.
    fn of(tag: &str) -> Self {
        let tag = tag.to_lowercase().replace('_', "-");
        let (tag, modifier) = tag.split_once('@').unwrap_or((&tag, ""));
        let before_encoding = |name: &str| name.split('.').next().unwrap_or("").to_owned();
        let (tag, modifier) = (before_encoding(tag), before_encoding(modifier));
        let mut subtags = tag.split('-').map(str::to_owned).peekable();
        let language = subtags.next().unwrap_or_default();
        let script = subtags.next_if(|next| is_script(next)).or_else(|| {
            MODIFIERS
                .iter()
                .find(|(name, _)| *name == modifier)
                .map(|(_, script)| (*script).to_owned())
        });
        Self {
            language,
            script,
            rest: subtags.collect(),
        }
    }

    /// The script in which the language is most likely written in the region; `None` for a language that has one script.
    fn likely_script(&self) -> Option<&'static str> {
        let (_, usual, others) = SCRIPTS.iter().find(|(name, ..)| *name == self.language)?;
        // Behind an extended language, as in zh-yue-HK.
        let region = self.rest.iter().find(|subtag| subtag.len() == 2);
        let here = region.and_then(|region| {
            others
                .iter()
                .find(|(_, regions)| regions.contains(&region.as_str()))
                .map(|(script, _)| *script)
        });
        Some(here.unwrap_or(usual))
    }

    /// The same locale, with its script if it has none, or without if that is the likely one.
    fn other_spelling(&self) -> Option<Self> {
        let likely = self.likely_script()?;
        let script = match self.script.as_deref() {
            None => Some(likely.to_owned()),
            Some(script) if script == likely => None,
            Some(_) => return None,
        };
        Some(Self {
            script,
            ..self.clone()
        })
    }

    /// The tag, and it without its last subtag, and so on down to the language.
    fn shorter_forms(&self) -> impl Iterator<Item = Form> {
        let base = match &self.script {
            Some(script) => format!("{}-{script}", self.language),
            None => self.language.clone(),
        };
        let with_rest = (0..=self.rest.len()).rev().map({
            let base = base.clone();
            move |kept| Form {
                kept,
                has_script: self.script.is_some(),
                tag: std::iter::once(base.as_str())
                    .chain(self.rest.iter().take(kept).map(String::as_str))
                    .collect::<Vec<_>>()
                    .join("-"),
            }
        });
        let language = Form {
            kept: 0,
            has_script: false,
            tag: self.language.clone(),
        };
        with_rest.chain([language])
    }
}

/// A tag to look for.
struct Form {
    /// The number of subtags behind language and script.
    kept: usize,
    has_script: bool,
    tag: String,
}

/// The tags to look for, best first: this one, then those with more of its region and variants, and among them that
/// with the script.
fn nearest(wanted: &Subtags) -> Vec<String> {
    let other = wanted.other_spelling();
    let mut forms: Vec<Form> = wanted.shorter_forms().collect();
    forms.extend(other.iter().flat_map(Subtags::shorter_forms));
    if let Some((_, others)) = forms.split_first_mut() {
        others.sort_by_key(|form| (Reverse(form.kept), !form.has_script));
    }
    forms.into_iter().map(|form| form.tag).collect()
}

/// Whether a subtag is a script, RFC 5646 section 2.2.3.
fn is_script(subtag: &str) -> bool {
    subtag.len() == 4 && subtag.bytes().all(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(tag: &str) -> Vec<String> {
        locales(Some(tag), "")
    }

    #[test]
    fn locales_go_from_the_wanted_to_the_default() {
        for (wanted, default, expected) in [
            (None, "en", vec!["en"]),
            (Some("en"), "en", vec!["en"]),
            (Some("de"), "en", vec!["de", "en"]),
            (Some("pt_BR"), "en-GB", vec!["pt-br", "pt", "en-gb", "en"]),
            (
                Some("de-CH-1996"),
                "en_US.UTF-8",
                vec!["de-ch-1996", "de-ch", "de", "en-us", "en"],
            ),
            (Some(""), "", vec![]),
            (Some("@euro"), "en", vec!["en"]),
        ] {
            assert_eq!(locales(wanted, default), expected);
        }
    }

    #[test]
    fn the_script_of_the_region_comes_before_the_language() {
        for (tag, expected) in [
            ("zh-HK", vec!["zh-hk", "zh-hant-hk", "zh-hant", "zh"]),
            ("zh_TW", vec!["zh-tw", "zh-hant-tw", "zh-hant", "zh"]),
            ("zh-MO", vec!["zh-mo", "zh-hant-mo", "zh-hant", "zh"]),
            ("zh-CN", vec!["zh-cn", "zh-hans-cn", "zh-hans", "zh"]),
            ("zh-SG", vec!["zh-sg", "zh-hans-sg", "zh-hans", "zh"]),
            ("zh", vec!["zh", "zh-hans"]),
            ("zh-Hans", vec!["zh-hans", "zh"]),
            ("zh-Hant", vec!["zh-hant", "zh"]),
            ("zh-Hant-HK", vec!["zh-hant-hk", "zh-hk", "zh-hant", "zh"]),
            (
                "zh-yue-HK",
                vec![
                    "zh-yue-hk",
                    "zh-hant-yue-hk",
                    "zh-hant-yue",
                    "zh-yue",
                    "zh-hant",
                    "zh",
                ],
            ),
            // Another script than the likely one, so not that of sr-RS.
            ("sr-Latn-RS", vec!["sr-latn-rs", "sr-latn", "sr"]),
            ("sr-RS", vec!["sr-rs", "sr-cyrl-rs", "sr-cyrl", "sr"]),
            ("sr-ME", vec!["sr-me", "sr-latn-me", "sr-latn", "sr"]),
            ("uz-AF", vec!["uz-af", "uz-arab-af", "uz-arab", "uz"]),
            // One script, so it is not added.
            ("de-Latn-AT", vec!["de-latn-at", "de-latn", "de"]),
        ] {
            assert_eq!(wanted(tag), expected, "{tag}");
        }
    }

    #[test]
    fn encoding_and_modifier_are_dropped() {
        for (tag, expected) in [
            ("pt_BR.UTF-8", vec!["pt-br", "pt"]),
            ("de_DE.iso885915@euro", vec!["de-de", "de"]),
            ("de_DE@euro", vec!["de-de", "de"]),
            ("sr_RS@latin", vec!["sr-latn-rs", "sr-latn", "sr"]),
            ("sr_RS.UTF-8@latin", vec!["sr-latn-rs", "sr-latn", "sr"]),
            ("uz_UZ@cyrillic", vec!["uz-cyrl-uz", "uz-cyrl", "uz"]),
            ("zh_HK.Big5", vec!["zh-hk", "zh-hant-hk", "zh-hant", "zh"]),
            ("C.UTF-8", vec!["c"]),
        ] {
            assert_eq!(wanted(tag), expected, "{tag}");
        }
    }

    /// Each shorter form is a string of its own: those of a tag of 400,000 octets would have 40 GB.
    #[test]
    fn a_locale_that_is_too_long_is_ignored() {
        let longest = "a-".repeat(49) + "bb";
        assert_eq!(locales(Some(&longest), "en").len(), 51);
        assert_eq!(locales(Some(&(longest + "b")), "en"), ["en"]);
        let long = "a-".repeat(10_000);
        assert_eq!(locales(Some(&long), "en"), ["en"]);
        assert_eq!(locales(None, &long), [""; 0]);
    }
}
