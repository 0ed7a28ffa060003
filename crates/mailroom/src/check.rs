//! `mailroom check`: checks the transports file, the transports and the databases.
//!
//! | module | owns |
//! |---|---|
//! | `endpoint` | reaching a transport |
//! | `trial` | a test message through each transport |
//!
//! It prints one line for each, and one for each problem of a database, on standard output, and changes nothing in a
//! database.

mod endpoint;
mod trial;

use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use mailroom_core::transport::config::{self, TransportConfig};
use mailroom_core::{address, line};
use tokio::runtime::Runtime;

use crate::arguments::Check;
use crate::conninfo::{Environment, Target};
use crate::control::Control;
use crate::database_error::DatabaseError;
use crate::log::{Format, Log};
use crate::session::Session;

/// The result of a check.
#[derive(Default)]
struct Report {
    is_bad: bool,
}

impl Report {
    /// Prints one line.
    fn say(&mut self, what: &str, found: Result<String, String>) {
        let text = match found {
            Ok(text) => text,
            Err(text) => {
                self.is_bad = true;
                text
            }
        };
        let visible = |c: char| if line::is_control(c) { ' ' } else { c };
        let line: String = text.chars().map(visible).collect();
        let _ = writeln!(std::io::stdout(), "{what}: {line}");
    }

    fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.is_bad))
    }
}

/// A message and its hint, if there is one.
fn with_hint(problem: &str, hint: &str) -> String {
    match hint {
        "" => problem.to_owned(),
        hint => format!("{problem} ({hint})"),
    }
}

/// Checks everything that the arguments name.
pub fn run(arguments: &Check) -> ExitCode {
    let mut report = Report::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => Rc::new(runtime),
        Err(error) => {
            report.say("system", Err(error.to_string()));
            return report.exit_code();
        }
    };
    let transports = match config::load(&arguments.transports) {
        Ok(transports) => transports,
        Err(error) => {
            let problem = with_hint(&error.to_string(), &error.hint());
            report.say("transports", Err(problem));
            return report.exit_code();
        }
    };
    if transports.is_empty() {
        report.say("transports", Err("the file names none".to_owned()));
    }
    for transport in &transports {
        let what = format!(
            "transport \"{}\" ({})",
            transport.name, transport.provider_name
        );
        report.say(&what, runtime.block_on(endpoint::reach(transport)));
    }
    let around = Environment::of_process();
    for given in &arguments.databases {
        match Target::parse(given, &around) {
            Ok(target) => {
                let what = format!("database \"{}\"", target.label());
                let found = database(&runtime, &target, &transports);
                let unused = target.unused_passfile().filter(|_| found.is_err());
                let (found, problems) = match found {
                    Ok((line, problems)) => (Ok(line), problems),
                    Err(problem) => (Err(problem), Vec::new()),
                };
                report.say(&what, found);
                for problem in problems {
                    report.say(&what, problem);
                }
                if let Some(path) = unused {
                    let what = format!("password file \"{}\"", path.display());
                    let problem = "not used, because others than its owner may read it";
                    report.say(&what, Err(with_hint(problem, "Set its mode to 0600.")));
                }
            }
            Err(problem) => report.say("database", Err(problem.to_string())),
        }
    }
    if let Some(to) = &arguments.to {
        match address::check(to) {
            Ok(()) => try_out(&mut report, &runtime, arguments, &transports, to),
            Err(_) => report.say("--to", Err("this is no address".to_owned())),
        }
    }
    report.exit_code()
}

/// Sends a test message through each transport.
fn try_out(
    report: &mut Report,
    runtime: &Rc<Runtime>,
    arguments: &Check,
    transports: &[TransportConfig],
    to: &str,
) {
    let names: Vec<&str> = transports
        .iter()
        .map(|transport| &*transport.name)
        .collect();
    match trial::send(runtime, &arguments.transports, &names, to) {
        Ok(outcomes) => {
            for (name, outcome) in outcomes {
                report.say(&format!("test message through \"{name}\""), outcome);
            }
        }
        Err(error) => report.say("test message", Err(error.to_string())),
    }
}

/// Describes a database, and what mailroom_problems says of it: an error if mail is not sent because of it.
fn database(
    runtime: &Rc<Runtime>,
    target: &Target,
    transports: &[TransportConfig],
) -> Result<(String, Vec<Result<String, String>>), String> {
    let tell = |failure: DatabaseError| with_hint(&failure.to_string(), failure.hint());
    let log = Log::new(Format::Text);
    let (_orders, control) = Control::new();
    let mut session = Session::attach(runtime, target, &control, &log).map_err(tell)?;
    session.poll(&[]).map_err(tell)?;
    let serves = |transport: &&TransportConfig| transport.serves(session.database());
    let names: Vec<&str> = transports
        .iter()
        .filter(serves)
        .map(|transport| &*transport.name)
        .collect();
    let what = match session.is_collector() {
        true => "claims, settles and collects",
        false => "claims and settles",
    };
    let through = match names.as_slice() {
        [] => return Err("the file names no transport for this database".to_owned()),
        names => names.join(", "),
    };
    let (library, extension) = session.versions().map_err(tell)?;
    let line = format!(
        "ok; versions: extension {extension}, library {library}, program {}; role \"{}\" {what}; transports: {through}",
        env!("CARGO_PKG_VERSION"),
        session.role()
    );
    let problems = session.problems().map_err(tell)?;
    session.close();
    let judged = |(is_critical, text)| if is_critical { Err(text) } else { Ok(text) };
    Ok((line, problems.into_iter().map(judged).collect()))
}
