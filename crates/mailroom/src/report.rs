//! `mailroom report`: reads a report of delivery from standard input, as a mail server pipes it, and reports its events.
//!
//! The exit codes are those that mail servers know (sysexits.h): a mail that was not taken for now is piped again later.

use std::io::{Read, Write};
use std::process::ExitCode;

use mailroom_core::events::dsn;
use tokio::task::LocalSet;

use crate::arguments::Report;
use crate::conninfo::{Environment, Target, parse_all};
use crate::database_error::DatabaseError;
use crate::log::{Format, Log};
use crate::receive::connection::{Connection, Failure};

/// EX_USAGE.
const USAGE: u8 = 64;
/// EX_TEMPFAIL: the mail server tries again.
const LATER: u8 = 75;

/// Reads one mail and reports its events in each database.
pub fn run(arguments: &Report) -> ExitCode {
    let log = Log::new(Format::default());
    let environment = Environment::of_process().for_application("mailroom report");
    let targets = match parse_all(&arguments.databases, &environment) {
        Ok(targets) => targets,
        Err(message) => {
            log.warn(&message, "", "See mailroom --help.");
            return ExitCode::from(USAGE);
        }
    };
    let mail = match mail() {
        Ok(mail) => mail,
        Err(error) => {
            log.warn(&format!("cannot read the mail: {error}"), "", "");
            return ExitCode::from(LATER);
        }
    };
    let events = match dsn::read(&mail) {
        Ok(events) => events,
        Err(nothing) => {
            // Refusing it would make the mail server report that to whom the report came from.
            let _ = writeln!(std::io::stdout(), "{nothing}");
            return ExitCode::SUCCESS;
        }
    };
    let events = serde_json::Value::Array(events).to_string();
    match report(&targets, &arguments.transport, &events) {
        Ok(news) => {
            let _ = writeln!(std::io::stdout(), "{news} events recorded");
            ExitCode::SUCCESS
        }
        Err((message, hint)) => {
            log.warn(&message, "The mail server tries again.", &hint);
            ExitCode::from(LATER)
        }
    }
}

/// The beginning of the mail; all of it is read, so that the mail server can write it.
fn mail() -> std::io::Result<Vec<u8>> {
    let mut input = std::io::stdin().lock();
    let mut mail = Vec::new();
    input
        .by_ref()
        .take(dsn::READ_MAX as u64)
        .read_to_end(&mut mail)?;
    std::io::copy(&mut input, &mut std::io::sink())?;
    Ok(mail)
}

/// Reports events in each database; returns how many were news.
fn report(targets: &[Target], transport: &str, events: &str) -> Result<i32, (String, String)> {
    let told = |error: &DatabaseError| (error.to_string(), error.hint().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| (format!("the system refuses: {error}"), String::new()))?;
    LocalSet::new().block_on(&runtime, async {
        let mut news = 0_i32;
        for target in targets {
            let connection = Connection::open(target)
                .await
                .map_err(|failure: Failure| told(failure.error()))?;
            let recorded = connection.report(transport, events).await;
            connection.close().await;
            news = news.saturating_add(recorded.map_err(|error| told(&error))?.news);
        }
        Ok(news)
    })
}
