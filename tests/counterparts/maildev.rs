//! MailDev: an SMTP server for development, which keeps the mail and shows it.

use super::process::{Process, directory, free_port};
use super::programs::{module, node};

/// A running MailDev, on loopback only.
pub struct MailDev {
    pub smtp_port: u16,
    /// Of its pages, and of its REST interface below `/api`.
    pub web_port: u16,
    _process: Process,
}

impl MailDev {
    pub fn start() -> Self {
        let [smtp_port, web_port] = [(); 2].map(|()| free_port());
        let mut program = node();
        program
            .arg(module("maildev/dist/bin/maildev.js"))
            .args(["--ip", "127.0.0.1", "--web-ip", "127.0.0.1"])
            .args(["--smtp", &smtp_port.to_string()])
            .args(["--web", &web_port.to_string()])
            .arg("--mail-directory")
            .arg(directory());
        let mut process = Process::start(&program);
        process.printed("MailDev", |line| line.contains("to stop").then_some(()));
        Self {
            smtp_port,
            web_port,
            _process: process,
        }
    }
}
