//! The key file: reads, checks, creates and rotates it.
//!
//! One key a line, 64 hexadecimal digits; empty lines and lines that start with `#` are ignored. The first key signs;
//! all keys verify, which a rotation needs. `secret_file.rs` has the rule about its owner and mode; a process that can
//! read it can forge every link.
//!
//! Nothing here may show a byte of the file: errors name the path, the line and the violated rule.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::{KEY_LEN, SigningKey};
use crate::secret_file::{self, SecretFileProblem};

pub use crate::secret_file::Fingerprint;

/// Hexadecimal digits of a key.
const HEX_LEN: usize = KEY_LEN * 2;
/// Maximum size of a file in bytes; some hundreds of keys fit.
const MAX_FILE_LEN: u64 = secret_file::MAX_LEN;
/// No file of that size can hold more keys.
const MAX_KEYS: usize = MAX_FILE_LEN as usize / HEX_LEN;
/// How long a rotation waits for a concurrent one, which takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often it tries the lock meanwhile.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The keys of one file, in their order. There is always at least one.
pub struct KeyRing {
    /// Never empty, and never moved: moving a key would leave a copy that is not zeroed.
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

    /// Number of keys.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

/// An error about the key file.
#[derive(Debug)]
pub struct KeyFileError {
    /// Its path.
    pub path: PathBuf,
    /// The error.
    pub problem: KeyFileProblem,
}

/// The kinds of errors.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyFileProblem {
    /// The file itself.
    File(SecretFileProblem),
    /// A line is neither a key, nor empty, nor a comment.
    MalformedLine {
        /// Counted from 1.
        line: usize,
    },
    /// The file has no key.
    NoKey,
    /// The file is valid, but belongs to root, so the server may not replace it: the owner would restore the old
    /// contents.
    OfRoot,
    /// The file is valid, but the operating system does not allow it to be replaced.
    Irreplaceable(ErrorKind),
}

impl From<SecretFileProblem> for KeyFileProblem {
    fn from(problem: SecretFileProblem) -> Self {
        Self::File(problem)
    }
}

impl From<std::io::Error> for KeyFileProblem {
    fn from(error: std::io::Error) -> Self {
        Self::File(error.into())
    }
}

/// Reads and checks the key file at `path`.
///
/// # Errors
/// Any [`KeyFileProblem`], with the path.
pub fn load(path: &Path) -> Result<(KeyRing, Fingerprint), KeyFileError> {
    let fail = |problem| KeyFileError {
        path: path.to_owned(),
        problem,
    };
    read(path).map_err(fail)
}

fn read(path: &Path) -> Result<(KeyRing, Fingerprint), KeyFileProblem> {
    let (content, fingerprint) = secret_file::read(path)?;
    Ok((parse(&content)?, fingerprint))
}

fn parse(content: &[u8]) -> Result<KeyRing, KeyFileProblem> {
    // With the final capacity: a vector that grows leaves copies that are not zeroed.
    let lines = content.iter().filter(|byte| **byte == b'\n').count() + 1;
    let mut keys = Vec::with_capacity(lines.min(MAX_KEYS));
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let key = decode_hex(line).ok_or(KeyFileProblem::MalformedLine { line: index + 1 })?;
        keys.push(SigningKey::new(&key));
    }
    if keys.is_empty() {
        Err(KeyFileProblem::NoKey)
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

/// Creates a file with the key `key` and mode 0600, unless the file exists.
///
/// The key is written under a temporary name, synced, and then linked to its name, so the name never leads to an
/// incomplete file. Linking fails if the file exists. Returns whether this call created the file.
///
/// # Errors
/// [`SecretFileProblem::Unreadable`] when the directory is not writable, [`SecretFileProblem::Io`] for the rest.
pub fn create(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<bool, KeyFileError> {
    let fail = |error: std::io::Error| KeyFileError {
        path: path.to_owned(),
        problem: match error.into() {
            SecretFileProblem::Missing => SecretFileProblem::Io(ErrorKind::NotFound).into(),
            other => other.into(),
        },
    };
    let temporary = temporary_name(path);
    let outcome =
        write_new(&temporary, &line(key)).and_then(|()| std::fs::hard_link(&temporary, path));
    // The temporary name is removed in any case; only the result of the link counts.
    let _ = std::fs::remove_file(&temporary);
    match outcome {
        Ok(()) => sync_directory(path).map(|()| true).map_err(fail),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fail(error)),
    }
}

/// Inserts `key` as the first line of the file at `path`, keeps all other lines, and returns the number of keys.
///
/// At any time, the name leads to the complete old file or to the complete new one. Concurrent rotations run one after
/// the other, and none is lost. A symbolic link stays, and its target is replaced.
///
/// # Errors
/// Any [`KeyFileProblem`], with the path; the file is unchanged then. For a mounted file it is
/// [`KeyFileProblem::OfRoot`] or [`KeyFileProblem::Irreplaceable`].
pub fn prepend(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<usize, KeyFileError> {
    let fail = |problem| KeyFileError {
        path: path.to_owned(),
        problem,
    };
    replace(path, key).map_err(fail)
}

fn replace(path: &Path, key: &Zeroizing<[u8; KEY_LEN]>) -> Result<usize, KeyFileProblem> {
    let path = std::fs::canonicalize(path)?;
    // Locks the directory, because the file will be replaced.
    let _lock = lock_directory(&path)?;
    let (old, fingerprint) = secret_file::read(&path)?;
    let new = line(key);
    let mut content = Zeroizing::new(Vec::with_capacity(new.len() + old.len()));
    content.extend_from_slice(&new);
    content.extend_from_slice(&old);
    if content.len() as u64 > MAX_FILE_LEN {
        return Err(SecretFileProblem::TooLarge.into());
    }
    let keys = parse(&old)?.count() + 1;
    if !fingerprint.is_own() {
        return Err(KeyFileProblem::OfRoot);
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

/// Why a readable file cannot be replaced.
fn not_replaced(error: &std::io::Error) -> KeyFileProblem {
    match error.kind() {
        // The directory is root's, the file system is read-only, or the file is a mount point.
        kind @ (ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ResourceBusy) => KeyFileProblem::Irreplaceable(kind),
        kind => SecretFileProblem::Io(kind).into(),
    }
}

/// Locks the directory of the file against other rotations while the returned value lives.
fn lock_directory(path: &Path) -> Result<Option<File>, KeyFileProblem> {
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
                return Err(SecretFileProblem::Io(ErrorKind::WouldBlock).into());
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

/// A key as a line of the file.
fn line(key: &Zeroizing<[u8; KEY_LEN]>) -> Zeroizing<Vec<u8>> {
    let mut line = Zeroizing::new(Vec::with_capacity(HEX_LEN + 1));
    for byte in key.iter() {
        line.extend([byte >> 4, byte & 15].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
    }
    line.push(b'\n');
    line
}

fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    // A file of this name is the leftover of a crashed process with the same pid.
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
mod tests;
