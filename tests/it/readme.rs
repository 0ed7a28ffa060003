//! The README is short, and its sample output is what the demonstration shows, whose SMTP server runs in the Python
//! that `MAILROOM_PYTHON` names. Its commands and queries are executed with those of the book, see `book_blocks`.
//!
//! needs: aiosmtpd

use crate::demo::Demo;

#[test]
fn the_readme_is_short() {
    let lines = crate::book::read("README.md").lines().count();
    assert!(lines <= 150, "it has {lines} lines");
}

/// Whether a text contains the parts of this picture, which ellipses separate, in order; returns the first missing one.
fn shows(text: &str, picture: &str) -> Result<(), String> {
    let mut rest = text;
    for part in picture.split('…') {
        let Some((_, after)) = rest.split_once(part) else {
            return Err(part.to_owned());
        };
        rest = after;
    }
    Ok(())
}

#[test]
fn the_picture_is_what_the_demonstration_shows() {
    let picture = crate::book::block("README.md", "console");
    let mut shown = Vec::new();
    Demo::start(&mut shown).run();
    let shown = String::from_utf8(shown).unwrap();
    if let Err(part) = shows(&shown, &picture) {
        panic!("in its place there is no\n{part}\nin\n{shown}");
    }

    assert_eq!(shows("a: 1\nb\nc\n", "a: …\n…\nc\n"), Ok(()));
    assert_eq!(shows("a\nb\n", "b\n…a\n"), Err("a\n".to_owned()));
    assert_eq!(shows("a\nb\n", "a\nc\n"), Err("a\nc\n".to_owned()));
}
