//! Fuzzes the headers that an application adds to a message, and the URL of `unsubscribe_url`: what is accepted is one
//! line of ASCII.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mailroom_core::headers;

fn is_line(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fuzz_target!(|text: &str| {
    for (name, value) in headers::read(text).unwrap_or_default() {
        assert!(!name.is_empty() && is_line(&name) && !name.contains([' ', ':']));
        assert!(is_line(&value), "{value:?}");
    }
    if headers::check_unsubscribe_url(text).is_ok() {
        assert!(is_line(text) && !text.contains([' ', '<', '>']));
    }
});
