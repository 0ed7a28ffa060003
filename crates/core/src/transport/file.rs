//! Writes messages to a directory, one `.eml` file each: for development and tests.
//!
//! Only the server's user can read the files. A file is written under a temporary name and renamed when it is complete.
//! Writing blocks the deliverer's thread.

use std::fs::{self, File as OpenFile, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::dates;
use super::delivered::Delivered;
use super::invalid::Invalid;
use super::mime;
use super::providers::MessageOutcome;
use super::providers::mailbox::{self, Mailbox, Ready};
use crate::message::Message;

/// Only the owner may read a file.
const MODE: u32 = 0o600;

/// A directory that messages are written to.
pub struct Directory {
    path: PathBuf,
    from: Mailbox,
}

impl Directory {
    /// A transport that writes to this directory, which need not exist yet. `from`: the sender of all messages.
    ///
    /// # Errors
    /// When `from` is not an address or the path is not absolute.
    pub fn new(path: PathBuf, from: &str) -> Result<Self, Invalid> {
        if !path.is_absolute() {
            return Err(Invalid::new("directory", "is not an absolute path"));
        }
        let from = mailbox::sender(from)?;
        Ok(Self { path, from })
    }

    /// Checks whether the message can be written.
    ///
    /// # Errors
    /// Why it cannot; the reason quotes no part of it.
    pub fn check(&self, message: &Message) -> Result<(), String> {
        self.content(message, SystemTime::UNIX_EPOCH).map(|_| ())
    }

    /// Writes one message to a file named `<now>-<message_id>.eml`.
    pub fn deliver(&self, message: &Message, now: SystemTime) -> Delivered {
        let content = match self.content(message, now) {
            Ok(content) => content,
            Err(reason) => return Delivered::unsendable(reason),
        };
        let time = dates::basic(dates::unix(now));
        let name = format!("{time}-{}.eml", message.message_id);
        match write(&self.path, &name, &content) {
            Ok(()) => Delivered::decided(
                MessageOutcome::Sent {
                    provider_id: Some(name),
                },
                None,
            ),
            Err(error) => Delivered::decided(outcome(&error), None),
        }
    }

    fn content(&self, message: &Message, now: SystemTime) -> Result<Vec<u8>, String> {
        let ready = Ready::new(message, usize::MAX)?;
        mime::build(&self.from, &ready, now)
    }
}

fn write(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = directory.join(format!(".{name}.tmp"));
    let open = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&temporary)
    };
    let file = match open() {
        // Left by a process that crashed while it wrote the file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&temporary)?;
            open()?
        }
        other => other?,
    };
    let written = finish(file, content, &temporary, &directory.join(name));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // Makes the new name durable.
    OpenFile::open(directory)?.sync_all()
}

fn finish(mut file: OpenFile, content: &[u8], temporary: &Path, path: &Path) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

/// The outcome of a failed write: a full disk is a temporary failure; a missing directory is a wrong configuration.
fn outcome(error: &io::Error) -> MessageOutcome {
    let reason = format!("the file was not written: {}", error.kind());
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem => MessageOutcome::AccountRefused { reason },
        _ => MessageOutcome::Retry {
            reason,
            after: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::providers::fixture;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    /// An empty directory of this test's own, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mailroom-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
    }

    fn directory(path: &Path) -> Directory {
        Directory::new(path.to_owned(), "Shop <shop@example.com>").unwrap()
    }

    #[test]
    fn a_mail_becomes_a_file() {
        let scratch = Scratch::new("file");
        let directory = directory(&scratch.0);
        let message = fixture::message();
        let name = "20260102T030405Z-0f8fad5b-d9cb-469f-a165-70867728950e.eml";
        // Left by a crash.
        fs::write(scratch.0.join(format!(".{name}.tmp")), "half").unwrap();
        for _ in 0..2 {
            let delivered = directory.deliver(&message, now());
            let provider_id = Some(name.to_owned());
            assert_eq!(delivered.outcome, MessageOutcome::Sent { provider_id });
            assert_eq!(scratch.names(), [name]);
        }
        let path = scratch.0.join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("From: Shop <shop@example.com>\r\n"));
        assert!(text.contains("\r\nDate: Fri, 2 Jan 2026 03:04:05 +0000\r\n"));
    }

    #[test]
    fn what_cannot_be_written() {
        let scratch = Scratch::new("nofile");
        let missing = directory(&scratch.0.join("missing"));
        let delivered = missing.deliver(&fixture::message(), now());
        assert!(matches!(
            delivered.outcome,
            MessageOutcome::AccountRefused { .. }
        ));
        let mut message = fixture::message();
        message.message_id = "../../etc/passwd".to_owned();
        let delivered = directory(&scratch.0).deliver(&message, now());
        let reason = "the message_id is no UUID".to_owned();
        assert_eq!(delivered.outcome, MessageOutcome::Unsendable { reason });
        assert!(scratch.names().is_empty());
        assert!(Directory::new("mail".into(), "a@example.com").is_err());
        let full = outcome(&io::Error::from(ErrorKind::StorageFull));
        assert!(matches!(full, MessageOutcome::Retry { .. }));
    }
}
