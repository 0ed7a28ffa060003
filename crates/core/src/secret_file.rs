//! Files that contain secrets: reads one, and checks that no other user can.
//!
//! The rule is that of PostgreSQL for private keys: the file belongs to the server's user and has mode 0600 or
//! stricter, or it belongs to root and has mode 0640 or stricter. Files that Kubernetes, Docker and systemd mount
//! belong to root. Nothing here may show a byte of the file. `token/key_file.rs` and `transport/config.rs` parse the
//! contents.

use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

/// Maximum size in bytes; a larger file does not contain secrets of mailroom.
pub const MAX_LEN: u64 = 64 * 1024;
/// `O_NONBLOCK`, so that opening a named pipe by mistake fails instead of waiting for a writer.
const O_NONBLOCK: i32 = 0o4000;

/// Permission bits that must not be set if the server's user owns the file.
const CLOSED_IF_OWN: u32 = 0o077;
/// The same if root owns it: the server reads it as a member of the group.
const CLOSED_IF_OF_ROOT: u32 = 0o037;
/// The user id of root.
const ROOT: u32 = 0;

/// Identifies a state of the file without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    owner: u32,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Fingerprint {
    fn of(meta: &Metadata) -> Self {
        Self {
            owner: meta.uid(),
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// The current state of the file at `path`; `None` if it does not exist.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::of)
    }

    /// Whether the file belongs to the server's user, who may replace it.
    pub fn is_own(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }
}

/// Errors about such a file, apart from its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretFileProblem {
    /// The file does not exist.
    Missing,
    /// The server's user may not open it.
    Unreadable,
    /// It is a directory, a pipe or a device.
    NotAFile,
    /// It belongs neither to the server's user nor to root.
    ForeignOwner,
    /// Its permission bits allow more than the rule.
    TooOpen {
        /// The bits, e.g. `0o644`.
        mode: u32,
    },
    /// It is larger than [`MAX_LEN`].
    TooLarge,
    /// The operating system failed.
    Io(ErrorKind),
}

impl From<std::io::Error> for SecretFileProblem {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing,
            ErrorKind::PermissionDenied => Self::Unreadable,
            kind => Self::Io(kind),
        }
    }
}

impl fmt::Display for SecretFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "does not exist"),
            Self::Unreadable => write!(f, "cannot be opened by the server's user"),
            Self::NotAFile => write!(f, "is not a regular file"),
            Self::ForeignOwner => write!(f, "belongs neither to the server's user nor to root"),
            Self::TooOpen { mode } => write!(f, "is open to others, mode {mode:04o}"),
            Self::TooLarge => write!(f, "is too large"),
            Self::Io(kind) => write!(f, "cannot be used: {kind}"),
        }
    }
}

/// Reads and checks the file at `path`.
///
/// Symbolic links are followed, because secrets are often mounted behind one; the target is checked. Owner and mode are
/// those of the opened file, so it cannot be replaced between the check and the read.
///
/// # Errors
/// Any [`SecretFileProblem`].
pub fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Fingerprint), SecretFileProblem> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    judge(&meta)?;
    // One byte more than allowed shows that the file has grown since the check. The capacity is never exceeded, so the
    // buffer is not moved and leaves no copy that is not zeroed.
    let mut content = Zeroizing::new(Vec::with_capacity(MAX_LEN as usize + 1));
    file.take(MAX_LEN + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_LEN {
        return Err(SecretFileProblem::TooLarge);
    }
    // The state from before the read: if the file changed meanwhile, the next check finds a difference.
    Ok((content, Fingerprint::of(&meta)))
}

fn judge(meta: &Metadata) -> Result<(), SecretFileProblem> {
    if !meta.is_file() {
        return Err(SecretFileProblem::NotAFile);
    }
    judge_access(
        meta.uid(),
        meta.mode() & 0o7777,
        rustix::process::geteuid().as_raw(),
    )?;
    if meta.len() > MAX_LEN {
        return Err(SecretFileProblem::TooLarge);
    }
    Ok(())
}

/// Checks owner and mode for a server that runs as user `own`.
fn judge_access(owner: u32, mode: u32, own: u32) -> Result<(), SecretFileProblem> {
    let closed = match owner {
        // Before root: a server that runs as root owns the file that it reads.
        _ if owner == own => CLOSED_IF_OWN,
        ROOT => CLOSED_IF_OF_ROOT,
        _ => return Err(SecretFileProblem::ForeignOwner),
    };
    if mode & closed == 0 {
        Ok(())
    } else {
        Err(SecretFileProblem::TooOpen { mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_postgresqls_for_private_keys() {
        let (own, other) = (999, 1000);
        for mode in 0..=0o777 {
            let open = Err(SecretFileProblem::TooOpen { mode });
            let expect = |closed| {
                if mode & closed == 0 { Ok(()) } else { open }
            };
            assert_eq!(judge_access(own, mode, own), expect(0o077), "{mode:o}");
            assert_eq!(judge_access(ROOT, mode, own), expect(0o037), "{mode:o}");
            assert_eq!(judge_access(ROOT, mode, ROOT), expect(0o077), "{mode:o}");
            let foreign = Err(SecretFileProblem::ForeignOwner);
            assert_eq!(judge_access(other, mode, own), foreign, "{mode:o}");
            assert_eq!(judge_access(own, mode, ROOT), foreign, "{mode:o}");
        }
    }
}
