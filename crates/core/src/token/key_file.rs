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

use super::{KEY_LEN, SigningKey};
use crate::secret_file::{self, Problem as FileProblem};

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
mod tests;
