//! `mailroom`: delivers the mail of databases with the extension mailroom over connections, takes what providers tell of
//! it, and shows both to people.
//!
//! | module | owns |
//! |---|---|
//! | `arguments` | the command line |
//! | `readable_fd` | waiting for a file descriptor |
//! | `conninfo` | connection parameters in the syntax of libpq |
//! | `tls` | TLS to a database |
//! | `session` | a connection, and the job runner's store over it |
//! | `send` | `mailroom send` |
//! | `check` | `mailroom check` |
//! | `receive` | `mailroom receive` |
//! | `report` | `mailroom report` |
//! | `serve` | `mailroom serve` |
//! | `http_server` | a server of HTTP |
//! | `signals` | the signals |
//! | `control` | what signals ask for |
//! | `database_error` | errors of a database connection |
//! | `log` | lines on standard error |
//! | `service` | notifications to systemd |

#![forbid(unsafe_code)]

mod arguments;
mod check;
mod conninfo;
mod control;
mod database_error;
mod http_server;
mod log;
mod readable_fd;
mod receive;
mod report;
mod send;
mod serve;
mod service;
mod session;
mod signals;
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
        Ok(Command::Receive(arguments)) => receive::run(&arguments),
        Ok(Command::Report(arguments)) => report::run(&arguments),
        Ok(Command::Serve(arguments)) => serve::run(&arguments),
        Err(problem) => {
            let _ = writeln!(
                std::io::stderr(),
                "mailroom: {problem}\nTry mailroom --help."
            );
            ExitCode::from(2)
        }
    }
}

/// Prints to standard output and ignores errors, because the reader may have closed it.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
