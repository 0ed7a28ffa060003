//! The password file: lines `host:port:database:user:password`, `*` for any.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The contents of the file; `None` if it does not exist, or if other users may read it.
pub fn read(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    let is_private = about.is_file() && about.mode() & 0o077 == 0;
    if !is_private {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// Whether the file is ignored because of its mode.
pub fn is_too_open(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.mode() & 0o077 != 0)
}

/// The password of the first line for this host, port, database and user.
pub fn find(content: &str, wanted: &[&str; 4]) -> Option<String> {
    content
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let fields = split(line);
            let (password, names) = fields.split_last()?;
            let fits = names.len() == wanted.len()
                && names
                    .iter()
                    .zip(wanted)
                    .all(|((name, is_plain), wanted)| (*is_plain && name == "*") || name == wanted);
            fits.then(|| password.0.clone())
        })
}

/// The fields of a line, at most five, without backslashes; and for each whether it had none.
fn split(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), true)];
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        let is_last = fields.len() == 5;
        let Some((field, is_plain)) = fields.last_mut() else {
            break;
        };
        match c {
            '\\' => {
                field.extend(rest.next());
                *is_plain = false;
            }
            ':' if !is_last => fields.push((String::new(), true)),
            c => field.push(c),
        }
    }
    fields
}
