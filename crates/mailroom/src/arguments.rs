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
/// The default port of `--listen`, on this machine.
const PORT: u16 = 8025;

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

/// The commands that have options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Send,
    Check,
    Receive,
    Report,
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
        _ => Err("the command is none of send, check, receive and report".to_owned()),
    }
}

/// Parses the arguments of a command.
fn options(parser: &mut Parser, name: Name) -> Result<Command, String> {
    let mut given = Given {
        databases: Vec::new(),
        transports: None,
        transport: None,
        to: None,
        once: false,
        uses_notifications: true,
        poll: POLL,
        format: Format::default(),
        listen: (Ipv4Addr::LOCALHOST, PORT).into(),
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
            Arg::Short('t') | Arg::Long("transports") if name != Name::Report => {
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
            Arg::Long("log-format") if matches!(name, Name::Send | Name::Receive) => {
                given.format = format(&text(parser, "--log-format")?)?;
            }
            Arg::Long("to") if name == Name::Check => given.to = Some(text(parser, "--to")?),
            Arg::Long("listen") if name == Name::Receive => {
                given.listen = address(&text(parser, "--listen")?)?;
            }
            Arg::Long("behind-proxy") if name == Name::Receive => given.is_behind_proxy = true,
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
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn databases_may_be_many() {
        let line = "send --database postgresql://a/x -d dbname=y --transports=/t --once --poll 0.5 --log-format json --no-listen";
        let expected = Send {
            databases: vec!["postgresql://a/x".to_owned(), "dbname=y".to_owned()],
            transports: "/t".into(),
            once: true,
            poll: Duration::from_millis(500),
            listen: false,
            format: Format::Json,
        };
        assert_eq!(read(line), Ok(Command::Send(expected)));
    }

    #[test]
    fn a_report_names_its_transport() {
        let expected = Report {
            databases: vec!["x".to_owned()],
            transport: "relay".to_owned(),
        };
        let line = "report -d x --transport relay";
        assert_eq!(read(line), Ok(Command::Report(expected)));
        for wrong in [
            "report -d x",
            "report --transport relay",
            "report -d x -t /t",
            "send -d x -t /t --transport y",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_check_needs_no_database() {
        let expected = Check {
            databases: vec![],
            transports: "/t".into(),
            to: Some("a@example.com".to_owned()),
        };
        let line = "check --transports /t --to a@example.com";
        assert_eq!(read(line), Ok(Command::Check(expected)));
    }

    #[test]
    fn a_receiver_listens_on_this_machine() {
        let expected = |listen: &str| {
            Ok(Command::Receive(Receive {
                databases: vec!["x".to_owned()],
                transports: "/t".into(),
                listen: listen.parse().unwrap(),
                format: Format::Text,
            }))
        };
        let line = "receive -d x -t /t";
        assert_eq!(read(line), expected("127.0.0.1:8025"));
        for address in ["127.1.2.3:1", "[::1]:8026", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(
                read(&format!("{line} --listen {address}")),
                expected(address)
            );
        }
        for address in ["0.0.0.0:8025", "[::]:8025", "192.0.2.1:8025"] {
            let line = format!("{line} --listen {address}");
            let problem = read(&line).unwrap_err();
            assert!(problem.contains("--behind-proxy"), "{problem}");
            assert_eq!(read(&format!("{line} --behind-proxy")), expected(address));
        }
    }

    #[test]
    fn a_transports_file_is_named_from_the_root() {
        let expected = std::env::current_dir().unwrap().join("conf/t.toml");
        for command in ["send -d x", "check", "receive -d x"] {
            let transports = match read(&format!("{command} -t conf/t.toml")).unwrap() {
                Command::Send(send) => send.transports,
                Command::Check(check) => check.transports,
                Command::Receive(receive) => receive.transports,
                other => panic!("{other:?}"),
            };
            assert_eq!(transports, expected);
        }
        assert!(read("check --transports=").is_err());
    }

    #[test]
    fn help_is_to_be_had_anywhere() {
        for line in [
            "--help",
            "-h",
            "help",
            "send --help",
            "check -h",
            "receive -h",
        ] {
            assert_eq!(read(line), Ok(Command::Help), "{line}");
        }
        assert_eq!(read("--version"), Ok(Command::Version));
    }

    #[test]
    fn errors_are_one_line_without_values() {
        for (line, wrong) in [
            ("", "no command"),
            ("deliver", "command"),
            ("send --transports /t", "--database"),
            ("send --database hunter2", "--transports"),
            ("send hunter2", "argument"),
            ("send --database hunter2 --transports", "--transports"),
            ("send --once=hunter2", "--once"),
            ("send --to hunter2", "--to"),
            ("send --hunt", "--hunt"),
            ("send -d x -t t --poll hunter2", "--poll"),
            ("send -d x -t t --poll 0", "--poll"),
            ("send -d x -t t --log-format hunter2", "--log-format"),
            ("check --transports t --once", "--once"),
            ("receive -t t", "--database"),
            ("receive -d x", "--transports"),
            ("receive -d x -t t --once", "--once"),
            ("receive -d x -t t --listen hunter2", "--listen"),
            ("receive -d x -t t --listen 8025", "--listen"),
            ("send -d x -t t --listen 127.0.0.1:1", "--listen"),
            ("send -d x -t t --behind-proxy", "--behind-proxy"),
        ] {
            let told = read(line).unwrap_err();
            assert!(told.contains(wrong), "{line}: {told}");
            assert!(!told.contains("hunter2"), "{line}: {told}");
            assert!(!told.contains('\n'));
        }
    }

    #[test]
    fn help_tells_of_every_option() {
        for option in [
            "--database",
            "--transports",
            "--once",
            "--poll",
            "--no-listen",
            "--log-format",
            "--to",
            "--listen",
            "--behind-proxy",
            "SIGTERM",
            "SIGHUP",
            "NOTIFY_SOCKET",
            "PGPASSFILE",
        ] {
            assert!(HELP.contains(option), "{option}");
        }
    }
}
