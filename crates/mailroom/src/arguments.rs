//! The command line.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::log::Format;

/// The text of `--help`.
pub const HELP: &str = include_str!("help.txt");
/// The default of `--poll`: how often a database is asked for due mail without a notification.
const POLL: Duration = Duration::from_secs(5);
/// The default ports of `--listen`, on this machine: of `receive`, and of `serve`.
const PORT: u16 = 8025;
const PAGE_PORT: u16 = 8425;

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
    /// `mailroom send`.
    Send(Send),
    /// `mailroom check`.
    Check(Check),
    /// `mailroom receive`.
    Receive(Receive),
    /// `mailroom report`.
    Report(Report),
    /// `mailroom serve`.
    Serve(Serve),
}

/// Arguments of `mailroom send`.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    /// Databases in the syntax of libpq.
    pub databases: Vec<String>,
    /// The transports file.
    pub transports: PathBuf,
    /// End when no mail is due.
    pub once: bool,
    /// The maximum time between two polls.
    pub poll: Duration,
    /// Whether to use notifications.
    pub listen: bool,
    /// The format of the log.
    pub format: Format,
}

/// Arguments of `mailroom check`.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Databases in the syntax of libpq.
    pub databases: Vec<String>,
    /// The transports file.
    pub transports: PathBuf,
    /// The address of the test messages.
    pub to: Option<String>,
}

/// Arguments of `mailroom receive`.
#[derive(Debug, PartialEq, Eq)]
pub struct Receive {
    /// Databases in the syntax of libpq.
    pub databases: Vec<String>,
    /// The transports file.
    pub transports: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The format of the log.
    pub format: Format,
}

/// Arguments of `mailroom report`.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Databases in the syntax of libpq.
    pub databases: Vec<String>,
    /// The transport that sent the mail.
    pub transport: String,
}

/// Arguments of `mailroom serve`.
#[derive(Debug, PartialEq, Eq)]
pub struct Serve {
    /// Databases in the syntax of libpq, without user and password.
    pub databases: Vec<String>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The URL by which people reach it.
    pub url: Option<String>,
    /// Whether a proxy adds the address of the browser to `X-Forwarded-For`.
    pub is_behind_proxy: bool,
    /// The format of the log.
    pub format: Format,
}

/// The commands that have options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Send,
    Check,
    Receive,
    Report,
    Serve,
}

/// The options that were given, of any command.
struct Given {
    databases: Vec<String>,
    transports: Option<PathBuf>,
    transport: Option<String>,
    to: Option<String>,
    once: bool,
    uses_notifications: bool,
    poll: Duration,
    format: Format,
    listen: SocketAddr,
    url: Option<String>,
    is_behind_proxy: bool,
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// The error, in one line without a value.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut parser = Parser::from_args(arguments);
    let first = parser.next().map_err(|error| tell(&error))?;
    let name = match first {
        None => return Err("there is no command".to_owned()),
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Command::Help),
        Some(Arg::Short('V') | Arg::Long("version")) => return Ok(Command::Version),
        Some(Arg::Value(name)) => name.to_string_lossy().into_owned(),
        Some(other) => return Err(tell(&other.unexpected())),
    };
    match name.as_str() {
        "help" => Ok(Command::Help),
        "send" => options(&mut parser, Name::Send),
        "check" => options(&mut parser, Name::Check),
        "receive" => options(&mut parser, Name::Receive),
        "report" => options(&mut parser, Name::Report),
        "serve" => options(&mut parser, Name::Serve),
        _ => Err("the command is none of send, check, receive, report and serve".to_owned()),
    }
}

/// Parses the arguments of a command.
fn options(parser: &mut Parser, name: Name) -> Result<Command, String> {
    let port = match name {
        Name::Serve => PAGE_PORT,
        _ => PORT,
    };
    let mut given = Given {
        databases: Vec::new(),
        transports: None,
        transport: None,
        to: None,
        once: false,
        uses_notifications: true,
        poll: POLL,
        format: Format::default(),
        listen: (Ipv4Addr::LOCALHOST, port).into(),
        url: None,
        is_behind_proxy: false,
    };
    while let Some(argument) = parser.next().map_err(|error| tell(&error))? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            Arg::Short('d') | Arg::Long("database") => {
                given.databases.push(text(parser, "--database")?);
            }
            Arg::Long("transport") if name == Name::Report => {
                given.transport = Some(text(parser, "--transport")?);
            }
            Arg::Short('t') | Arg::Long("transports")
                if !matches!(name, Name::Report | Name::Serve) =>
            {
                let value = parser.value().map_err(|error| tell(&error))?;
                // The names in the file are relative to its directory, and some must be absolute.
                let path = std::path::absolute(value)
                    .map_err(|_| "the value of --transports is not a path".to_owned())?;
                given.transports = Some(path);
            }
            Arg::Long("once") if name == Name::Send => given.once = true,
            Arg::Long("no-listen") if name == Name::Send => given.uses_notifications = false,
            Arg::Long("poll") if name == Name::Send => {
                given.poll = seconds(&text(parser, "--poll")?)?;
            }
            Arg::Long("log-format") if matches!(name, Name::Send | Name::Receive | Name::Serve) => {
                given.format = format(&text(parser, "--log-format")?)?;
            }
            Arg::Long("to") if name == Name::Check => given.to = Some(text(parser, "--to")?),
            Arg::Long("listen") if matches!(name, Name::Receive | Name::Serve) => {
                given.listen = address(&text(parser, "--listen")?)?;
            }
            Arg::Long("url") if name == Name::Serve => given.url = Some(text(parser, "--url")?),
            Arg::Long("behind-proxy") if matches!(name, Name::Receive | Name::Serve) => {
                given.is_behind_proxy = true;
            }
            Arg::Value(_) => {
                // It may be a database, with a password in it.
                return Err("there is an argument without an option before it".to_owned());
            }
            other => return Err(tell(&other.unexpected())),
        }
    }
    given.command(name)
}

impl Given {
    /// The command, if nothing is missing.
    fn command(self, name: Name) -> Result<Command, String> {
        if name != Name::Check && self.databases.is_empty() {
            return Err(
                "--database is missing: it names a database, as a URL for instance".to_owned(),
            );
        }
        let transports = self
            .transports
            .ok_or("--transports is missing: it names the transports file".to_owned());
        if !self.is_behind_proxy && !self.listen.ip().to_canonical().is_loopback() {
            return Err(
                "other machines reach the address of --listen, and passwords would come without TLS: \
                 have a proxy with TLS in front of it and add --behind-proxy"
                    .to_owned(),
            );
        }
        Ok(match name {
            Name::Check => Command::Check(Check {
                databases: self.databases,
                transports: transports?,
                to: self.to,
            }),
            Name::Send => Command::Send(Send {
                databases: self.databases,
                transports: transports?,
                once: self.once,
                poll: self.poll,
                listen: self.uses_notifications,
                format: self.format,
            }),
            Name::Receive => Command::Receive(Receive {
                databases: self.databases,
                transports: transports?,
                listen: self.listen,
                format: self.format,
            }),
            Name::Report => Command::Report(Report {
                databases: self.databases,
                transport: self
                    .transport
                    .ok_or("--transport is missing: it names a transport".to_owned())?,
            }),
            Name::Serve => Command::Serve(Serve {
                databases: self.databases,
                listen: self.listen,
                url: self.url,
                is_behind_proxy: self.is_behind_proxy,
                format: self.format,
            }),
        })
    }
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("--log-format is none of text and json".to_owned()),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "--listen is not an address and a port, as in 127.0.0.1:8025".to_owned())
}

fn text(parser: &mut Parser, option: &str) -> Result<String, String> {
    let value = parser.value().map_err(|error| tell(&error))?;
    value
        .string()
        .map_err(|_| format!("the value of {option} is not UTF-8"))
}

/// Parses 0.1 to 3600 seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches('s').trim().parse::<f64>().ok();
    number
        .filter(|number| (0.1..=3_600.0).contains(number))
        .map(Duration::from_secs_f64)
        .ok_or("--poll is not a number of seconds from 0.1 to 3600".to_owned())
}

/// An error without the value, which may be a database with a password in it.
fn tell(error: &lexopt::Error) -> String {
    match error {
        lexopt::Error::MissingValue { option } => format!(
            "the option {} has no value",
            option.as_deref().unwrap_or_default()
        ),
        lexopt::Error::UnexpectedOption(option) => format!("there is no option {option} here"),
        lexopt::Error::UnexpectedValue { option, .. } => {
            format!("the option {option} takes no value")
        }
        _ => "the arguments cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests;
