//! aiosmtpd: an SMTP server that stores what it receives in a Maildir.
//!
//! `tests/run` installs it, and names its Python in `MAILROOM_PYTHON`.

#![allow(dead_code, reason = "each program uses its own part of this module")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Process};

/// The Python that `tests/run` prepares.
pub fn python() -> Command {
    let program = std::env::var("MAILROOM_PYTHON").unwrap_or_else(|_| {
        panic!("MAILROOM_PYTHON is not set: run this with `make`, which prepares it")
    });
    Command::new(program)
}

/// A running SMTP server on a loopback port. It ends when this is dropped.
pub struct Smtp {
    pub port: u16,
    maildir: PathBuf,
    _server: Process,
}

impl Smtp {
    /// Starts the server and waits until it listens.
    pub fn start() -> Self {
        Self::start_as("aiosmtpd.handlers.Mailbox")
    }

    /// As [`Self::start`], but refuses recipients whose addresses begin with `refused`.
    pub fn start_refusing() -> Self {
        Self::start_as("refusing.Mailbox")
    }

    fn start_as(class: &str) -> Self {
        // aiosmtpd does not print a port that the system chose.
        let port = process::free_port();
        let directory = process::directory();
        let maildir = directory.join("maildir");
        std::fs::write(directory.join("refusing.py"), include_str!("refusing.py")).unwrap();
        let mut command = python();
        command
            .env("PYTHONPATH", &directory)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["-m", "aiosmtpd", "--nosetuid", "--debug", "--listen"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["--class", class])
            .arg(&maildir);
        let mut server = Process::start(&command);
        server.printed("the SMTP server to listen", |line| {
            line.contains("Server is listening").then_some(())
        });
        Self {
            port,
            maildir,
            _server: server,
        }
    }

    /// A transports file with this relay as `main`.
    pub fn transports(&self) -> String {
        format!(
            "[transports.main]\nprovider = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n\
             from = \"Shop <shop@example.com>\"\nallowed_networks = [\"127.0.0.1\"]\n",
            self.port
        )
    }

    /// The files of the messages that arrived, the oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.maildir.join("new"));
        let mut files: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort_by_key(|file| fs::metadata(file).unwrap().modified().unwrap());
        files
    }

    /// The messages that arrived, as they were transmitted.
    pub fn messages(&self) -> Vec<String> {
        let read = |file: &PathBuf| fs::read_to_string(file).unwrap();
        self.files().iter().map(read).collect()
    }
}

/// A message as a mail client shows it: the sender, the recipients, where answers go, the subject, the plain text, and
/// attachments that are texts; decoded by Python's `email`.
pub fn as_shown(file: &Path) -> String {
    let output = python().args(["-c", SHOW]).arg(file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

const SHOW: &str = r#"
import email, email.policy, sys
message = email.message_from_binary_file(open(sys.argv[1], "rb"), policy=email.policy.default)
for name in "From", "To", "Reply-To", "Subject":
    if message[name]:
        print(f"{name}: {message[name]}")
print()
print(message.get_body(["plain"]).get_content())
for file in message.iter_attachments() if message.is_multipart() else ():
    print(f"[{file.get_filename()}, {file.get_content_type()}]")
    print(file.get_content())
"#;
