//! Tests of the key file.

use super::*;
use crate::token::{Purpose, parse as parse_token, sign};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const KEY_A: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
const KEY_B: &str = "CAFEBABEcafebabecafebabecafebabecafebabecafebabecafebabecafebabe";

/// A directory of this test's own, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("mailroom-keys-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, content: &str, mode: u32) -> PathBuf {
        let path = self.0.join("key");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn problem(path: &Path) -> KeyFileProblem {
    match load(path) {
        Ok(_) => panic!("the file was accepted"),
        Err(error) => error.problem,
    }
}

#[test]
fn the_first_key_signs_and_all_verify() {
    let scratch = Scratch::new("rotation");
    let (old, _) = load(&scratch.file(&format!("{KEY_A}\n"), 0o600)).unwrap();
    let text = format!("# rotated\n\n{KEY_B}\r\n  {KEY_A}");
    let (ring, _) = load(&scratch.file(&text, 0o400)).unwrap();
    let by_old = sign(old.signing(), Purpose::Activation, &[7; 32]);
    let by_new = sign(ring.signing(), Purpose::Activation, &[7; 32]);
    assert_ne!(by_old, by_new);
    for token in [by_old, by_new] {
        assert!(
            parse_token(&token)
                .unwrap()
                .is_genuine(ring.verifying(), Purpose::Activation)
        );
    }
}

#[test]
fn a_missing_file_is_told_apart() {
    assert_eq!(
        problem(Path::new("/nonexistent/mailroom.key")),
        KeyFileProblem::File(SecretFileProblem::Missing)
    );
}

#[test]
fn every_mode_that_others_can_use_is_refused() {
    let scratch = Scratch::new("modes");
    for mode in [0o640, 0o604, 0o620, 0o660, 0o644, 0o610, 0o777] {
        assert_eq!(
            problem(&scratch.file(KEY_A, mode)),
            KeyFileProblem::File(SecretFileProblem::TooOpen { mode })
        );
    }
}

#[test]
fn what_is_not_a_regular_file_is_refused() {
    let scratch = Scratch::new("directory");
    assert_eq!(
        problem(&scratch.0),
        KeyFileProblem::File(SecretFileProblem::NotAFile)
    );
}

#[test]
fn malformed_content_names_the_line_only() {
    let scratch = Scratch::new("malformed");
    let cases = [
        (
            KEY_A[1..].to_owned(),
            KeyFileProblem::MalformedLine { line: 1 },
        ),
        (
            format!("{KEY_A}0"),
            KeyFileProblem::MalformedLine { line: 1 },
        ),
        (
            format!("{KEY_A}\n{}g", &KEY_A[1..]),
            KeyFileProblem::MalformedLine { line: 2 },
        ),
        (
            format!("{KEY_A} {KEY_B}"),
            KeyFileProblem::MalformedLine { line: 1 },
        ),
        (
            "\u{feff}".to_owned() + KEY_A,
            KeyFileProblem::MalformedLine { line: 1 },
        ),
        (String::new(), KeyFileProblem::NoKey),
        ("# nothing but this\n\n".to_owned(), KeyFileProblem::NoKey),
        (
            "\n".repeat(MAX_FILE_LEN as usize + 1),
            KeyFileProblem::File(SecretFileProblem::TooLarge),
        ),
    ];
    for (content, expected) in cases {
        let found = problem(&scratch.file(&content, 0o600));
        assert_eq!(found, expected);
        assert!(!format!("{found:?}").contains("beef"));
    }
}

#[test]
fn a_created_file_is_private_and_loads() {
    let scratch = Scratch::new("create");
    let path = scratch.0.join("fresh");
    assert!(create(&path, &Zeroizing::new([9; KEY_LEN])).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    load(&path).unwrap();
    let leftovers = std::fs::read_dir(&scratch.0).unwrap().count();
    assert_eq!(leftovers, 1, "the temporary name is gone");
}

#[test]
fn an_existing_file_is_never_replaced() {
    let scratch = Scratch::new("existing");
    let path = scratch.file(KEY_A, 0o600);
    assert!(!create(&path, &Zeroizing::new([9; KEY_LEN])).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), KEY_A);
}

#[test]
fn a_rotation_puts_the_new_key_first_and_keeps_all_else() {
    let scratch = Scratch::new("prepend");
    let path = scratch.file(&format!("# ours\n{KEY_A}\n{KEY_B}"), 0o600);
    let (before, fingerprint) = load(&path).unwrap();
    assert_eq!(prepend(&path, &Zeroizing::new([9; KEY_LEN])).unwrap(), 3);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        format!("{}\n# ours\n{KEY_A}\n{KEY_B}", "09".repeat(32))
    );
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let (after, changed) = load(&path).unwrap();
    assert!(fingerprint != changed);
    let old = sign(before.signing(), Purpose::Activation, &[7; 32]);
    assert_ne!(sign(after.signing(), Purpose::Activation, &[7; 32]), old);
    let old = parse_token(&old).unwrap();
    assert!(old.is_genuine(after.verifying(), Purpose::Activation));
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_no_good_is_not_rotated() {
    let scratch = Scratch::new("prepend-bad");
    let key = Zeroizing::new([9; KEY_LEN]);
    let full = format!("{KEY_A}\n").repeat(MAX_FILE_LEN as usize / (HEX_LEN + 1));
    for (content, mode, expected) in [
        (
            KEY_A,
            0o640,
            KeyFileProblem::File(SecretFileProblem::TooOpen { mode: 0o640 }),
        ),
        (
            &KEY_A[1..],
            0o600,
            KeyFileProblem::MalformedLine { line: 1 },
        ),
        ("", 0o600, KeyFileProblem::NoKey),
        (
            &full,
            0o600,
            KeyFileProblem::File(SecretFileProblem::TooLarge),
        ),
    ] {
        let path = scratch.file(content, mode);
        assert_eq!(prepend(&path, &key).unwrap_err().problem, expected);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
    let absent = prepend(&scratch.0.join("absent"), &key).unwrap_err();
    assert_eq!(
        absent.problem,
        KeyFileProblem::File(SecretFileProblem::Missing)
    );
}

#[test]
fn a_rotation_follows_a_link_and_leaves_it() {
    let scratch = Scratch::new("prepend-link");
    let path = scratch.file(KEY_A, 0o600);
    let link = scratch.0.join("link");
    std::os::unix::fs::symlink("key", &link).unwrap();
    assert_eq!(prepend(&link, &Zeroizing::new([9; KEY_LEN])).unwrap(), 2);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(load(&path).unwrap().0.count(), 2);
}

#[test]
fn what_keeps_a_mounted_file_in_its_place_is_told_apart() {
    for (kind, expected) in [
        (
            ErrorKind::ReadOnlyFilesystem,
            KeyFileProblem::Irreplaceable(ErrorKind::ReadOnlyFilesystem),
        ),
        (
            ErrorKind::ResourceBusy,
            KeyFileProblem::Irreplaceable(ErrorKind::ResourceBusy),
        ),
        (
            ErrorKind::PermissionDenied,
            KeyFileProblem::Irreplaceable(ErrorKind::PermissionDenied),
        ),
        (
            ErrorKind::StorageFull,
            KeyFileProblem::File(SecretFileProblem::Io(ErrorKind::StorageFull)),
        ),
    ] {
        assert_eq!(not_replaced(&kind.into()), expected);
    }
}

#[test]
fn rotations_at_the_same_time_lose_no_key_and_leave_no_gap() {
    let scratch = Scratch::new("prepend-many");
    let path = scratch.file(&format!("{KEY_A}\n"), 0o600);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                let keys = load(&path).unwrap().0.count();
                assert!(keys >= seen, "a key was lost");
                seen = keys;
            }
        });
        // One after the other in this process, whose temporary name is one; the lock is between them.
        let writers: Vec<_> = (1..=4)
            .map(|writer| {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..10 {
                        prepend(path, &Zeroizing::new([writer * 16 + round; KEY_LEN])).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(load(&path).unwrap().0.count(), 41);
}

#[test]
fn a_change_of_the_file_changes_its_fingerprint() {
    let scratch = Scratch::new("fingerprint");
    let (_, first) = load(&scratch.file(KEY_A, 0o600)).unwrap();
    assert!(Fingerprint::at(&scratch.0.join("key")) == Some(first));
    scratch.file(&format!("{KEY_B}\n{KEY_A}"), 0o600);
    assert!(Fingerprint::at(&scratch.0.join("key")) != Some(first));
    assert!(Fingerprint::at(&scratch.0.join("absent")).is_none());
}
