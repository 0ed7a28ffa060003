//! `mailroom serve`: a page for people, who log in as roles of PostgreSQL.
//!
//! | module | owns |
//! |---|---|
//! | `handler` | the answer to each request |
//! | `route` | paths and methods |
//! | `site` | where the page is: allowed hosts and origins, the path before all others, cookies |
//! | `response` | answers and their headers |
//! | `form` | the values of queries and forms |
//! | `attempts` | limits for attempts to log in |
//! | `sessions` | who is logged in |
//! | `database` | a database, logging in to it |
//! | `connection` | the connection of a session: one transaction for each request |
//! | `rights` | what a role may see and do |
//! | `cells` | reading rows |
//! | `layout` | what all pages share |
//! | `words` | how times, numbers and states are written |
//! | `pages` | the pages |
//! | `assets` | style sheet, script and icon |
//!
//! The program has no credentials of its own, and no role of its own decides anything: each statement runs as the role that
//! logged in, so that the privileges of the database decide who sees what. It runs on one thread.

mod assets;
mod attempts;
mod cells;
mod connection;
mod database;
mod form;
mod handler;
mod layout;
mod pages;
mod response;
mod rights;
mod route;
mod sessions;
mod site;
mod words;

use std::process::ExitCode;
use std::rc::Rc;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use self::database::Database;
use self::handler::Pages;
use self::site::Site;
use crate::arguments::Serve;
use crate::conninfo::{Environment, labels, parse_all};
use crate::http_server;
use crate::log::Log;

/// Serves until a signal stops the program.
pub fn run(arguments: &Serve) -> ExitCode {
    let log = Log::new(arguments.format);
    // Passwords are in memory. Where the system does not allow it, a core file is what its settings make of it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    match start(arguments, &log) {
        Ok(code) => code,
        Err(message) => {
            log.warn(&message, "", "See mailroom --help.");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: &Serve, log: &Log) -> Result<ExitCode, String> {
    let site = Site::new(arguments.url.as_deref(), arguments.listen.port())?;
    if arguments.is_behind_proxy && !site.is_secure() && !arguments.listen.ip().is_loopback() {
        return Err(
            "other machines reach the address of --listen, and passwords would come without TLS: \
             have a proxy with TLS in front of it, and name its address in --url https://…"
                .to_owned(),
        );
    }
    if arguments.listen.port() == 0 {
        return Err("--listen needs a port, because requests have to name it".to_owned());
    }
    let environment = Environment::of_process()
        .for_application("mailroom serve")
        .without_credentials();
    let targets = parse_all(&arguments.databases, &environment)?;
    if targets.iter().any(|target| target.names_role()) {
        return Err(
            "a database has a user or a password: people log in as themselves, so leave them out"
                .to_owned(),
        );
    }
    let labels = labels(&targets);
    let databases = targets.into_iter().zip(labels);
    let databases = databases
        .map(|(target, label)| Rc::new(Database::new(target, label, log)))
        .collect();
    let pages = Pages::new(site, arguments.is_behind_proxy, databases, log.clone());
    Ok(http_server::serve(
        "mailroom serve",
        arguments.listen,
        log,
        pages,
    ))
}
