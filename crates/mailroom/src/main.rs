//! `mailroom`: the deliverer of the extension mailroom, over connections.
//!
//! | module | owns |
//! |---|---|
//! | `arguments` | the command line |
//! | `jobs_fd` | waiting for a deliverer |
//! | `conninfo` | where a database is, as libpq reads it |
//! | `tls` | whether a database's certificate counts |
//! | `session` | a connection, and the deliverer's store over it |
//! | `send` | `mailroom send` |
//! | `check` | `mailroom check` |
//! | `control` | what signals asked for |
//! | `failure` | why something could not be done in a database |
//! | `log` | lines on stderr |
//! | `service` | what systemd is told |

#![forbid(unsafe_code)]

mod arguments;
mod check;
mod conninfo;
mod control;
mod database_error;
mod log;
mod readable_fd;
mod send;
mod service;
mod session;
mod tls;

use std::io::Write;
use std::process::ExitCode;

use arguments::Command;

fn main() -> ExitCode {
    match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => say(arguments::HELP),
        Ok(Command::Version) => say(concat!("mailroom ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Command::Send(arguments)) => send::run(&arguments),
        Ok(Command::Check(arguments)) => check::run(&arguments),
        Err(problem) => {
            let _ = writeln!(
                std::io::stderr(),
                "mailroom: {problem}\nTry mailroom --help."
            );
            ExitCode::from(2)
        }
    }
}

/// To standard output, where it may not be wanted.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
