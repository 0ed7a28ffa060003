//! SMTP servers of aiosmtpd, which the counterparts' own Python does not have: see `smtp_server.py`.

use std::path::PathBuf;
use std::process::Command;

use super::mails::{self, Arrived};
use super::process::{Process, directory};
use super::tls::Authority;

/// The servers, all with STARTTLS.
pub struct Aiosmtpd {
    home: PathBuf,
    authority: &'static Authority,
    process: Process,
}

impl Aiosmtpd {
    /// Starts the servers; `password` is the password of the user `shop`, and the token.
    pub fn start(password: &str) -> Self {
        let home = directory();
        let authority = Authority::shared();
        std::fs::create_dir(home.join("mails")).unwrap();
        std::fs::copy(&authority.key, home.join("key")).unwrap();
        std::fs::copy(&authority.chain, home.join("chain")).unwrap();
        for name in ["password", "token"] {
            std::fs::write(home.join(name), password).unwrap();
        }
        let program = std::env::var("MAILROOM_PYTHON").unwrap_or_else(|_| {
            panic!("MAILROOM_PYTHON is not set: run the tests with `make test`, which prepares it")
        });
        let mut python = Command::new(program);
        python
            .arg("-B")
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/counterparts/smtp_server.py"
            ))
            .arg(&home);
        let mut process = Process::start(&python);
        process.port("xoauth2 ");
        Self {
            home,
            authority,
            process,
        }
    }

    /// The table of a transport to one of the servers.
    pub fn transport(&mut self, server: &str, name: &str, more: &str) -> String {
        let ca = self.authority.certificate.display();
        let port = self.process.port(&format!("{server} "));
        mails::transport(name, port, &format!("ca_file = \"{ca}\"\n{more}"))
    }

    /// All mails that the servers accepted.
    pub fn mails(&self) -> Vec<Arrived> {
        mails::read(&self.home.join("mails"))
    }

    /// What the servers printed.
    pub fn output(&self) -> String {
        self.process.output()
    }
}
