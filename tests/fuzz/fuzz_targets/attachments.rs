//! Fuzzes names, content types and content ids of files: what is accepted fits a header.
//!
//! The input is three lines a file: name, type (`-` for none), content id (`-` for none).

#![no_main]

use libfuzzer_sys::fuzz_target;
use mailroom_core::attachment::{judge, judge_all};

fuzz_target!(|text: &str| {
    let lines: Vec<&str> = text.split('\n').collect();
    let given = |text: &&str| Some(*text).filter(|text| *text != "-").map(str::to_owned);
    let mut ids = Vec::new();
    for file in lines.chunks_exact(3) {
        let (filename, content_type, content_id) = (file[0], given(&file[1]), given(&file[2]));
        let judged = judge(filename, content_type.as_deref(), content_id.as_deref());
        if let Ok(of) = judged {
            assert!(of.len() <= 78 && of.contains('/'));
            assert!(of.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            assert!(!filename.contains(|c: char| c.is_control() || "/\\".contains(c)));
            ids.push(content_id);
        }
    }
    let ids: Vec<Option<&str>> = ids.iter().map(Option::as_deref).collect();
    let _ = judge_all(&ids, text.len() % 2 == 0);
});
