//! `mailroom receive`: an HTTP endpoint for the webhooks of providers.
//!
//! | module | owns |
//! |---|---|
//! | `endpoint` | the answer to each request |
//! | `route` | paths and methods |
//! | `transports` | the transports file: how requests are verified |
//! | `unsubscribe` | the page behind the links of lists, and what its button does |
//! | `sns` | certificates and confirmations of Amazon SNS |
//! | `database` | one database: its connection, its outages |
//! | `connection` | the transactions of a connection |
//!
//! It listens on the internet, so it holds nothing that a stranger may want: its role reads no mail, and it reads the secrets
//! for events only. It runs on one thread.

pub mod connection;
mod database;
mod endpoint;
mod route;
mod sns;
mod transports;
mod unsubscribe;

use std::process::ExitCode;
use std::rc::Rc;

use self::database::Database;
use self::endpoint::Endpoint;
use self::transports::Transports;
use crate::arguments::Receive;
use crate::conninfo::{Environment, labels, parse_all};
use crate::http_server;
use crate::log::Log;

/// Receives until a signal stops the program.
pub fn run(arguments: &Receive) -> ExitCode {
    let log = Log::new(arguments.format);
    match start(arguments, &log) {
        Ok(code) | Err(code) => code,
    }
}

fn start(arguments: &Receive, log: &Log) -> Result<ExitCode, ExitCode> {
    let refuse = |code: u8, message: String, hint: String| {
        log.warn(&message, "", &hint);
        ExitCode::from(code)
    };
    let environment = Environment::of_process().for_application("mailroom receive");
    let targets = parse_all(&arguments.databases, &environment)
        .map_err(|message| refuse(2, message, "See mailroom --help.".to_owned()))?;
    // An error in the file ends the program at the start. Later, an error keeps the previous transports in force.
    let transports = Transports::load(arguments.transports.clone())
        .map_err(|error| refuse(1, error.to_string(), error.hint()))?;
    let labels = labels(&targets);
    let databases = targets.into_iter().zip(labels);
    let databases = databases.map(|(target, label)| {
        let log = log.of_database(&label);
        Rc::new(Database::new(target, log))
    });
    let endpoint = Endpoint::new(log.clone(), transports, databases.collect());
    Ok(http_server::serve(
        "mailroom receive",
        arguments.listen,
        log,
        endpoint,
    ))
}
