//! Fuzzes templates, with the variables of a mail: a template is refused or rendered within its limits, and a rendered
//! subject is one line.
//!
//! The input is a byte for the part, the variables as JSON or nothing, a line `%%`, and the source.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use mailroom_core::template::{Engine, OUTPUT_MAX, Part, SUBJECT_MAX, Serde, Value};
use serde_json::json;

thread_local! {
    // One, as a server has: what it keeps is limited.
    static ENGINE: RefCell<Engine> = RefCell::new(Engine::new());
}

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let (variables, source) = text.split_once("%%\n").unwrap_or(("", text));
    let variables = serde_json::from_str(variables).unwrap_or_else(|_| {
        json!({"login": "ada", "link": "https://example.com/?t=1", "items": [{"name": "a", "price": 1.5}, {"name": "<b>"}]})
    });
    let part = [Part::Subject, Part::Text, Part::Html][usize::from(first % 3)];
    ENGINE.with_borrow_mut(|engine| {
        let checked = engine.check(part, source);
        let rendered = engine.render(part, source, &Value::from(Serde(variables)));
        match rendered {
            Ok(text) if part == Part::Subject => {
                assert!(text.len() <= SUBJECT_MAX && !text.contains(char::is_control));
            }
            Ok(text) => assert!(text.len() <= OUTPUT_MAX),
            Err(_) => {}
        }
        if let Err(error) = checked {
            assert!(!error.to_string().is_empty());
            assert!(engine.render(part, source, &Value::UNDEFINED).is_err());
        }
    });
});
