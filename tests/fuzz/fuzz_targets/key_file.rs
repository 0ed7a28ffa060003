//! Fuzzes the key file, through a file.

#![no_main]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mailroom_core::token::key_file;

static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("mailroom-fuzz-{}.key", std::process::id()))
});

fuzz_target!(|content: &[u8]| {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options
        .open(&*PATH)
        .and_then(|mut file| file.write_all(content));
    file.expect("the file is written");
    if let Ok((keys, _)) = key_file::load(&PATH) {
        assert!(keys.count() * 64 <= content.len());
    }
});
