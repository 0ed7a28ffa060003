//! The key file: reading it, judging it, making one.
//!
//! One key a line, 64 hexadecimal digits; empty lines and lines that start with `#` are passed over. The
//! first key signs, all of them verify, which is what a rotation needs. Who may own and read the file is the rule
//! of `secret_file.rs`; a process that reads it can forge every link.
//!
//! Nothing here may show a byte of the file: errors name the path, the line and the rule that was broken.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::secret_file::{self, Problem as FileProblem};
use crate::token::{KEY_LEN, SigningKey};

pub use crate::secret_file::Fingerprint;

/// Hexadecimal digits of a key.
const HEX_LEN: usize = KEY_LEN * 2;
/// Of a file, in bytes; some hundreds of keys fit.
const MAX_FILE_LEN: u64 = secret_file::MAX_LEN;
/// More keys than a file of that size can hold.
const MAX_KEYS: usize = MAX_FILE_LEN as usize / HEX_LEN;
/// How long a rotation waits for another one, which takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks meanwhile.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The keys of one file, in their order. There is always at least one.
pub struct KeyRing {
    /// Never empty, and never moved about: a moved key leaves a copy behind that nobody zeroes.
    keys: Vec<SigningKey>,
}

impl KeyRing {
    /// The key that signs.
    pub fn signing(&self) -> &SigningKey {
        &self.keys[0]
    }

    /// Every key that verifies, the signing one first.
    pub fn verifying(&self) -> impl Iterator<Item = &SigningKey> {
        self.keys.iter()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

/// Why there are no keys to work with.
#[derive(Debug)]
pub struct KeyFileError {
    /// The file in question.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a key file.
#[derive(Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file itself.
    File(FileProblem),
    /// A line is neither a key, nor empty, nor a comment.
    MalformedLine {
        /// Counted from 1.
        line: usize,
    },
    /// It holds no key at all.
    NoKey,
    /// It is good, but not the server's to replace: it belongs to root, who would put back what was there.
    OfRoot,
    /// It is good, but the operating system does not let it be replaced.
    Irreplaceable(ErrorKind),
}

impl From<FileProblem> for Problem {
    fn from(problem: FileProblem) -> Self {
        Self::File(problem)
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::File(error.into())
    }
}

/// Reads and judges the key file at `path`.
///
/// # Errors
/// Any [`Problem`], with the path.
pub fn load(path: &Path) -> Result<(KeyRing, Fingerprint), KeyFileError> {
    let fail = |problem| KeyFileError {
        path: path.to_owned(),
        problem,
    };
    read(path).map_err(fail)
}

fn read(path: &Path) -> Result<(KeyRing, Fingerprint), Problem> {
    let (content, fingerprint) = secret_file::read(path)?;
    Ok((parse(&content)?, fingerprint))
}

fn parse(content: &[u8]) -> Result<KeyRing, Problem> {
    // Sized beforehand: a vector that grows leaves copies behind that nobody zeroes.
    let lines = content.iter().filter(|byte| **byte == b'\n').count() + 1;
    let mut keys = Vec::with_capacity(lines.min(MAX_KEYS));
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let key = decode_hex(line).ok_or(Problem::MalformedLine { line: index + 1 })?;
        keys.push(SigningKey::new(&key));
    }
    if keys.is_empty() {
        Err(Problem::NoKey)
    } else {
        Ok(KeyRing { keys })
    }
}

fn decode_hex(line: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    if line.len() != HEX_LEN {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = Zeroizing::new([0_u8; KEY_LEN]);
    for (byte, pair) in key.iter_mut().zip(line.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(key)
}

/// Writes a new file with the one key `key`, mode 0600, unless a file is already there.
///
/// The key is complete and on disk before the name exists: it is written under a temporary name, synced,
/// and linked, which fails when somebody else was first. Returns whether this call made the file.
///
/// # Errors
/// [`FileProblem::Unreadable`] when the directory is not writable, [`FileProblem::Io`] for the rest.
pub fn create(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<bool, KeyFileError> {
    let fail = |error: std::io::Error| KeyFileError {
        path: path.to_owned(),
        problem: match error.into() {
            FileProblem::Missing => FileProblem::Io(ErrorKind::NotFound).into(),
            other => other.into(),
        },
    };
    let temporary = temporary_name(path);
    let outcome =
        write_new(&temporary, &line(key)).and_then(|()| std::fs::hard_link(&temporary, path));
    // The temporary name goes whether or not the link was made; only the link's outcome counts.
    let _ = std::fs::remove_file(&temporary);
    match outcome {
        Ok(()) => sync_directory(path).map(|()| true).map_err(fail),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fail(error)),
    }
}

/// Puts `key` into the first line of the file at `path` and keeps all other lines; returns how many keys
/// there are then.
///
/// The name leads to the old file or to the new one, complete and on disk, and to nothing else at any time.
/// Rotations at the same time come one after the other, and none is lost. A symbolic link stays, and what
/// it leads to is replaced.
///
/// # Errors
/// Any [`Problem`], with the path; the file is as it was then. A file that is mounted is [`Problem::OfRoot`], or
/// [`Problem::Irreplaceable`].
pub fn prepend(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<usize, KeyFileError> {
    let fail = |problem| KeyFileError {
        path: path.to_owned(),
        problem,
    };
    replace(path, key).map_err(fail)
}

fn replace(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<usize, Problem> {
    let path = std::fs::canonicalize(path)?;
    // The directory rather than the file, which will be another one after this.
    let _lock = lock_directory(&path)?;
    let (old, fingerprint) = secret_file::read(&path)?;
    let new = line(key);
    let mut content = Zeroizing::new(Vec::with_capacity(new.len() + old.len()));
    content.extend_from_slice(&new);
    content.extend_from_slice(&old);
    if content.len() as u64 > MAX_FILE_LEN {
        return Err(FileProblem::TooLarge.into());
    }
    let keys = parse(&old)?.count() + 1;
    if !fingerprint.is_own() {
        return Err(Problem::OfRoot);
    }
    let temporary = temporary_name(&path);
    write_new(&temporary, &content)
        .and_then(|()| std::fs::rename(&temporary, &path))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
        .map_err(|error| not_replaced(&error))?;
    sync_directory(&path)?;
    Ok(keys)
}

/// Why there is no other file in the place of one that can be read.
fn not_replaced(error: &std::io::Error) -> Problem {
    match error.kind() {
        // The directory is root's, the file system is read-only, or the file is a mount point.
        kind @ (ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ResourceBusy) => Problem::Irreplaceable(kind),
        kind => FileProblem::Io(kind).into(),
    }
}

/// Locks the directory of the file against other rotations, for as long as the returned value lives.
fn lock_directory(path: &Path) -> Result<Option<File>, Problem> {
    let Some(directory) = path.parent() else {
        return Ok(None);
    };
    let directory = File::open(directory).map_err(|error| not_replaced(&error))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(Some(directory)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(FileProblem::Io(ErrorKind::WouldBlock).into());
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    PathBuf::from(name)
}

/// A key as the file has it.
fn line(key: &Zeroizing<[u8; KEY_LEN]>) -> Zeroizing<Vec<u8>> {
    let mut line = Zeroizing::new(Vec::with_capacity(HEX_LEN + 1));
    for byte in key.iter() {
        line.extend([byte >> 4, byte & 15].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
    }
    line.push(b'\n');
    line
}

fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    // A file of this name can only be the leftover of a crashed process that had our pid.
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        None => Ok(()),
        Some(directory) => File::open(directory)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
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

    fn problem(path: &Path) -> Problem {
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
            Problem::File(FileProblem::Missing)
        );
    }

    #[test]
    fn every_mode_that_others_can_use_is_refused() {
        let scratch = Scratch::new("modes");
        for mode in [0o640, 0o604, 0o620, 0o660, 0o644, 0o610, 0o777] {
            assert_eq!(
                problem(&scratch.file(KEY_A, mode)),
                Problem::File(FileProblem::TooOpen { mode })
            );
        }
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused() {
        let scratch = Scratch::new("directory");
        assert_eq!(problem(&scratch.0), Problem::File(FileProblem::NotAFile));
    }

    #[test]
    fn malformed_content_names_the_line_only() {
        let scratch = Scratch::new("malformed");
        let cases = [
            (KEY_A[1..].to_owned(), Problem::MalformedLine { line: 1 }),
            (format!("{KEY_A}0"), Problem::MalformedLine { line: 1 }),
            (
                format!("{KEY_A}\n{}g", &KEY_A[1..]),
                Problem::MalformedLine { line: 2 },
            ),
            (
                format!("{KEY_A} {KEY_B}"),
                Problem::MalformedLine { line: 1 },
            ),
            (
                "\u{feff}".to_owned() + KEY_A,
                Problem::MalformedLine { line: 1 },
            ),
            (String::new(), Problem::NoKey),
            ("# nothing but this\n\n".to_owned(), Problem::NoKey),
            (
                "\n".repeat(MAX_FILE_LEN as usize + 1),
                Problem::File(FileProblem::TooLarge),
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
                Problem::File(FileProblem::TooOpen { mode: 0o640 }),
            ),
            (&KEY_A[1..], 0o600, Problem::MalformedLine { line: 1 }),
            ("", 0o600, Problem::NoKey),
            (&full, 0o600, Problem::File(FileProblem::TooLarge)),
        ] {
            let path = scratch.file(content, mode);
            assert_eq!(prepend(&path, &key).unwrap_err().problem, expected);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
        }
        let absent = prepend(&scratch.0.join("absent"), &key).unwrap_err();
        assert_eq!(absent.problem, Problem::File(FileProblem::Missing));
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
                Problem::Irreplaceable(ErrorKind::ReadOnlyFilesystem),
            ),
            (
                ErrorKind::ResourceBusy,
                Problem::Irreplaceable(ErrorKind::ResourceBusy),
            ),
            (
                ErrorKind::PermissionDenied,
                Problem::Irreplaceable(ErrorKind::PermissionDenied),
            ),
            (
                ErrorKind::StorageFull,
                Problem::File(FileProblem::Io(ErrorKind::StorageFull)),
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
}
