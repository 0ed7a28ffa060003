//! aiosmtpd, an SMTP server of another project, in the Python that MAILROOM_PYTHON names.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::cluster::eventually;

/// The Python that `make test` prepares.
pub fn python() -> Command {
    let program = std::env::var("MAILROOM_PYTHON").unwrap_or_else(|_| {
        panic!("MAILROOM_PYTHON is not set: run the tests with `make test`, which prepares it")
    });
    Command::new(program)
}

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An SMTP server that files what it gets.
pub struct Smtp {
    pub port: u16,
    mailbox: PathBuf,
    _server: Running,
}

impl Smtp {
    /// One that takes everything.
    pub fn start(directory: &Path) -> Self {
        Self::start_as(directory, "aiosmtpd.handlers.Mailbox")
    }

    /// One that takes nothing for addresses that begin with `refused`.
    pub fn start_refusing(directory: &Path) -> Self {
        Self::start_as(directory, "refusing.Mailbox")
    }

    fn start_as(directory: &Path, class: &str) -> Self {
        // Free now, and most likely still so in a moment.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mailbox = directory.join("mailbox");
        let server = python()
            .env(
                "PYTHONPATH",
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smtp"),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["-m", "aiosmtpd", "--nosetuid", "--listen"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["--class", class])
            .arg(&mailbox)
            .spawn()
            .unwrap();
        let server = Running(server);
        eventually("the SMTP server", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Self {
            port,
            mailbox,
            _server: server,
        }
    }

    /// The messages that arrived.
    pub fn messages(&self) -> Vec<String> {
        std::fs::read_dir(self.mailbox.join("new"))
            .into_iter()
            .flatten()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect()
    }

    /// A transports file with this relay as `main`.
    pub fn transports(&self) -> String {
        format!(
            "[transports.main]\nprovider = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n\
             from = \"Shop <shop@example.com>\"\nallowed_networks = [\"127.0.0.1\"]\n",
            self.port
        )
    }
}
