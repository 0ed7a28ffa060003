//! Fuzzes the plain text of HTML. One of 16 inputs is repeated up to 64 KiB, so that time that grows faster
//! than the input exceeds the limit of a run.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mailroom_core::transport::plain::from_html;

const LONG: usize = 64 * 1024;

fuzz_target!(|data: &[u8]| {
    let Some((first, html)) = data.split_first() else {
        return;
    };
    let html = String::from_utf8_lossy(html);
    if first % 16 != 1 || html.is_empty() {
        let _ = from_html(&html);
    } else {
        let _ = from_html(&html.repeat(LONG / html.len()));
    }
});
