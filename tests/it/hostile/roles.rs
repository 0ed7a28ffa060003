//! Roles with unexpected attributes, and event triggers of superusers.

use std::sync::Barrier;

use super::code;
use crate::cluster::{Cluster, eventually, number};
use postgres::Client;
use postgres::error::SqlState;

/// The number of objects of the extension.
fn members(client: &mut Client) -> i64 {
    number(
        client,
        "SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' \
         AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'mailroom')",
    )
}

#[test]
fn a_superusers_event_triggers_are_obeyed_or_fail_it_cleanly() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE TABLE commands (tag text); \
             CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS \
                 $$ BEGIN INSERT INTO public.commands SELECT command_tag FROM pg_event_trigger_ddl_commands(); END $$; \
             CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = 'RF001'; END $$",
        )
        .unwrap();
    let roles = number(&mut client, "SELECT count(*) FROM pg_roles");
    for tag in [
        "CREATE EXTENSION",
        "CREATE FUNCTION",
        "CREATE TABLE",
        "ALTER FUNCTION",
        "GRANT",
        "COMMENT",
    ] {
        for event in ["ddl_command_start", "ddl_command_end"] {
            client
                .batch_execute(&format!(
                    "CREATE EVENT TRIGGER refuse ON {event} WHEN TAG IN ('{tag}') EXECUTE FUNCTION refuse()"
                ))
                .unwrap();
            let error = client
                .batch_execute("CREATE EXTENSION mailroom")
                .expect_err(tag);
            assert_eq!(code(&error).code(), "RF001", "{error:?}");
            client.batch_execute("DROP EVENT TRIGGER refuse").unwrap();
            assert_eq!(members(&mut client), 0);
            assert_eq!(number(&mut client, "SELECT count(*) FROM pg_roles"), roles);
            assert_eq!(
                number(
                    &mut client,
                    "SELECT count(*) FROM pg_class WHERE relname = 'accounts'"
                ),
                0
            );
        }
    }
    // A worker may still be examining whether the database has the extension.
    eventually("no worker", || {
        crate::cluster::find_worker(&mut client)
            .is_none()
            .then_some(())
    });
    client
        .batch_execute(
            "CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION note(); CREATE EXTENSION mailroom; \
             CREATE TABLE people (email text); SELECT mailroom_attach('people', 'email')",
        )
        .unwrap();
    for tag in ["CREATE FUNCTION", "CREATE TABLE", "CREATE TRIGGER"] {
        let noted = number(
            &mut client,
            &format!("SELECT count(*) FROM commands WHERE tag = '{tag}'"),
        );
        assert!(noted > 0, "{tag}");
    }
    client
        .batch_execute("INSERT INTO people VALUES ('a@example.com')")
        .unwrap();
    eventually("its mail", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
}

#[test]
fn databases_share_the_roles_even_when_installed_at_once() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    let databases: Vec<String> = (0..4).map(|number| format!("app{number}")).collect();
    for round in 0..3 {
        for name in &databases {
            client
                .batch_execute(&format!("CREATE DATABASE {name}"))
                .unwrap();
        }
        let barrier = Barrier::new(databases.len());
        std::thread::scope(|scope| {
            for name in &databases {
                let (cluster, barrier) = (&cluster, &barrier);
                scope.spawn(move || {
                    let mut client = cluster.connect(name);
                    barrier.wait();
                    // At any isolation level, the installation must see the roles that others have committed.
                    let isolation = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][round];
                    client
                        .batch_execute(&format!(
                            "BEGIN ISOLATION LEVEL {isolation}; CREATE EXTENSION mailroom; COMMIT"
                        ))
                        .unwrap_or_else(|error| panic!("{name}, {isolation}: {error:?}"));
                });
            }
        });
        assert_eq!(
            number(
                &mut client,
                "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'mailroom\\_%'"
            ),
            8
        );
        // Each database has its own grants, so the roles can be dropped only after the last database.
        for (index, name) in databases.iter().enumerate() {
            if index + 1 == databases.len() {
                let error = client.batch_execute("DROP ROLE mailroom_app").unwrap_err();
                assert_eq!(code(&error), &SqlState::DEPENDENT_OBJECTS_STILL_EXIST);
            }
            client
                .batch_execute(&format!("DROP DATABASE {name}"))
                .unwrap();
        }
        client
            .batch_execute(
                "DROP ROLE mailroom_app, mailroom_collector, mailroom_sender, mailroom_monitor, mailroom_support, mailroom_admin, \
                 mailroom_definer",
            )
            .unwrap();
    }
}

#[test]
fn a_definer_that_somebody_can_be_is_refused() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE ROLE mallory LOGIN").unwrap();
    for (preparation, detail) in [
        (
            "CREATE ROLE mailroom_definer SUPERUSER",
            "It is a superuser.",
        ),
        ("CREATE ROLE mailroom_definer LOGIN", "It may log in."),
        (
            "CREATE ROLE mailroom_definer CREATEROLE",
            "It has attributes that give it powers.",
        ),
        (
            "CREATE ROLE mailroom_definer BYPASSRLS",
            "It has attributes that give it powers.",
        ),
        (
            "CREATE ROLE mailroom_definer; GRANT mailroom_definer TO mallory",
            "It has members.",
        ),
        (
            "CREATE ROLE mailroom_definer IN ROLE pg_read_all_data",
            "It is a member of another role.",
        ),
    ] {
        client.batch_execute(preparation).unwrap();
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(preparation);
        let told = error.as_db_error().unwrap();
        assert_eq!(told.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert_eq!(
            told.message(),
            "role \"mailroom_definer\" cannot be used by mailroom"
        );
        assert_eq!(told.detail(), Some(detail));
        assert_eq!(members(&mut client), 0);
        client.batch_execute("DROP ROLE mailroom_definer").unwrap();
    }
    // A role without these faults is accepted, no matter who created it.
    client
        .batch_execute("CREATE ROLE mailroom_definer; CREATE EXTENSION mailroom")
        .unwrap();
}

#[test]
fn a_superuser_of_our_name_is_not_taken_for_ours() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    for role in [
        "mailroom_app",
        "mailroom_sender",
        "mailroom_collector",
        "mailroom_monitor",
        "mailroom_support",
        "mailroom_admin",
    ] {
        client
            .batch_execute(&format!("CREATE ROLE {role} SUPERUSER"))
            .unwrap();
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(role);
        let told = error.as_db_error().unwrap();
        assert_eq!(told.code(), &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert_eq!(
            told.message(),
            format!("role \"{role}\" cannot be used by mailroom")
        );
        assert_eq!(told.detail(), Some("It is a superuser."));
        client.batch_execute(&format!("DROP ROLE {role}")).unwrap();
    }
    // Existing roles that may log in are accepted.
    client
        .batch_execute("CREATE ROLE mailroom_app LOGIN; CREATE EXTENSION mailroom")
        .unwrap();
    let mut app = cluster.connect_as("postgres", "mailroom_app");
    app.batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
}

#[test]
fn a_worker_goes_on_while_its_roles_are_altered() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_timeout = 0"]);
    let worker = cluster.worker("app");
    let mut collected = 0;
    let mut must_collect = |client: &mut Client| {
        collected += 1;
        let sign_up = format!(
            "INSERT INTO accounts (email, login) VALUES ('a{collected}@example.com', 'a{collected}')"
        );
        client.batch_execute(&sign_up).unwrap();
        eventually("the mail of the sign-up", || {
            (number(client, "SELECT count(*) FROM outbox") == collected).then_some(())
        });
    };
    must_collect(&mut client);
    let error = client
        .batch_execute("DROP ROLE mailroom_collector")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::DEPENDENT_OBJECTS_STILL_EXIST);
    for alteration in [
        "ALTER ROLE mailroom_sender RENAME TO former_sender",
        "ALTER ROLE mailroom_collector SET statement_timeout = '1ms'",
        "ALTER ROLE mailroom_collector CONNECTION LIMIT 0",
        "ALTER ROLE mailroom_collector RENAME TO former_collector",
    ] {
        client.batch_execute(alteration).unwrap();
        must_collect(&mut client);
        assert_eq!(cluster.worker("app"), worker, "{alteration}");
    }
    // A new worker looks up the role, logs that it does not exist, and waits for it.
    client
        .execute("SELECT pg_terminate_backend($1)", &[&worker])
        .unwrap();
    eventually("the new worker to miss the role", || {
        cluster
            .log()
            .contains("role mailroom_collector does not exist")
            .then_some(())
    });
    client
        .batch_execute(
            "ALTER ROLE former_collector RENAME TO mailroom_collector; \
             ALTER ROLE former_sender RENAME TO mailroom_sender; \
             SELECT mailroom_wake_worker()",
        )
        .unwrap();
    must_collect(&mut client);
}
