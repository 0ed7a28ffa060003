//! Fuzzes the transports file: an error never shows a value.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mailroom_core::transport::config;

/// What stands as a secret in the seeds.
const SECRET: &str = "hunter2";

fuzz_target!(|content: &str| {
    let Err(error) = config::parse(content, Path::new("/nonexistent")) else {
        return;
    };
    // Where it is the name of a key or of a transport, an error may say it.
    let is_value = content
        .match_indices(SECRET)
        .all(|(at, _)| content[..at].ends_with("= \""));
    assert!(
        !is_value || !format!("{error}\n{error:?}").contains(SECRET),
        "{error}"
    );
});
