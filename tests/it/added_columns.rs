//! An application adds columns to the tables of the extension: their names decide nothing.

#[path = "../added_columns/mod.rs"]
mod columns;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};
use columns::{Kind, PARTS};
use postgres::{Client, SimpleQueryMessage};

const TRAFFIC: &str = include_str!("../hostile/traffic.sql");

/// Each variant of added columns.
fn variants() -> impl Iterator<Item = (Kind, usize)> {
    [Kind::Text, Kind::AsDeclared]
        .into_iter()
        .flat_map(|kind| (0..PARTS).map(move |part| (kind, part)))
}

/// Runs the traffic; returns how many rows each statement returned or changed. How many mails a claim finds depends on the
/// time since attempts failed, so of a claim it returns whether it found any, and of those that wait afterwards nothing.
fn traffic(client: &mut Client, variant: &str) -> Vec<(String, Vec<u64>)> {
    TRAFFIC
        .split("\n\n")
        .map(|statement| {
            let statement = statement.replace("@s@", "public");
            let told = client
                .simple_query(&statement)
                .unwrap_or_else(|error| panic!("{variant}: {statement}\n{error:?}"));
            let counts = told.iter().filter_map(|message| match message {
                SimpleQueryMessage::CommandComplete(count) => Some(*count),
                _ => None,
            });
            let most = if statement.contains("outbox_waits") {
                0
            } else if statement.contains("mailroom_claim(") {
                1
            } else {
                u64::MAX
            };
            let counts = counts.map(|count| count.min(most)).collect();
            (statement, counts)
        })
        .collect()
}

#[test]
fn every_function_does_what_it_does_without_them() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let without = traffic(&mut cluster.create_database("app"), "without");
    for (kind, part) in variants() {
        let name = format!("app_{kind:?}_{part}").to_lowercase();
        let mut client = cluster.create_database(&name);
        columns::add(&mut client, kind, part);
        for (with, without) in traffic(&mut client, &name).iter().zip(&without) {
            assert_eq!(with, without, "{name}");
        }
    }
}

/// The functions in SQL, as the server reads them: with the table of each column, and the number of each parameter.
fn functions_as_read(client: &mut Client) -> BTreeMap<String, String> {
    let functions = client
        .query(
            "SELECT p.oid::regprocedure::text, p.oid, pg_get_functiondef(p.oid) FROM pg_depend d \
             JOIN pg_proc p ON p.oid = d.objid JOIN pg_language l ON l.oid = p.prolang \
             WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
             AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom') \
             AND l.lanname = 'sql' AND p.prosqlbody IS NULL",
            &[],
        )
        .unwrap();
    assert!(functions.len() > 10);
    let mut read = BTreeMap::new();
    for function in functions {
        let (name, oid, definition): (String, u32, String) =
            (function.get(0), function.get(1), function.get(2));
        let atomic = definition
            .replace("AS $function$", "BEGIN ATOMIC ")
            .replace("$function$", "; END");
        let mut transaction = client.transaction().unwrap();
        transaction
            .batch_execute("SET LOCAL search_path = pg_catalog, public, pg_temp")
            .unwrap();
        transaction
            .batch_execute(&atomic)
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let body = transaction
            .query_one("SELECT pg_get_functiondef($1)", &[&oid])
            .unwrap();
        read.insert(name, body.get(0));
    }
    read
}

#[test]
fn a_function_in_sql_means_its_parameters() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let without = functions_as_read(&mut cluster.create_database("app"));
    for (kind, part) in variants() {
        let name = format!("app_{kind:?}_{part}").to_lowercase();
        let mut client = cluster.create_database(&name);
        columns::add(&mut client, kind, part);
        assert_eq!(functions_as_read(&mut client), without, "{name}");
    }
}

/// `#variable_conflict` would take an added column, or hide that a variable is meant.
#[test]
fn no_function_says_which_of_two_names_is_meant() {
    assert!(!columns::sources().contains("variable_conflict"));
}

#[test]
fn mail_is_sent_and_settled_once() {
    for (kind, part) in variants() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let receiver = Receiver::start(move |request| {
            log.lock().unwrap().push(request.message_id().to_owned());
            status(204)
        });
        let mut post = Post::start(&receiver, &["mailroom.batch_timeout = 0"]);
        columns::add(&mut post.client, kind, part);
        post.client
            .batch_execute(
                "INSERT INTO accounts (email, login, status) \
                 VALUES ('a@example.com', 'a', 'provisioned'), ('b@example.com', 'b', 'active'); \
                 SELECT mailroom_request_recovery('b@example.com')",
            )
            .unwrap();
        post.send(3);
        post.wait_until_ended(5);
        assert_eq!(post.count("state = 'sent'"), 5);
        let errors = number(
            &mut post.client,
            "SELECT errors_in_a_row FROM mailroom_status()",
        );
        assert_eq!(errors, 0, "{kind:?} {part}");
        assert_eq!(
            number(&mut post.client, "SELECT count(*) FROM outbox_attempts"),
            0
        );
        assert_eq!(
            number(
                &mut post.client,
                "SELECT count(*) FROM job_runs WHERE job_runs.error IS NOT NULL"
            ),
            0
        );
        let mut sent = seen.lock().unwrap().clone();
        sent.sort();
        let copies = sent.len();
        sent.dedup();
        assert_eq!((sent.len(), copies), (5, 5), "{kind:?} {part}");
    }
}
