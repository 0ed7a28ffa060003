//! Objects with names of the extension, and schemas with unusual names.

use super::{code, traffic};
use crate::cluster::{Cluster, eventually, number};
use postgres::error::SqlState;

#[test]
fn objects_of_the_same_names_fail_the_installation_and_nothing_else() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute("CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO other")
        .unwrap();
    let mut other = cluster.connect_as("postgres", "other");
    let objects = [
        ("TABLE accounts (id bigint)", "TABLE accounts"),
        ("TABLE tokens (id bigint)", "TABLE tokens"),
        ("VIEW outbox AS SELECT 1 AS id", "VIEW outbox"),
        ("SEQUENCE accounts_id_seq", "SEQUENCE accounts_id_seq"),
        (
            "MATERIALIZED VIEW _token_verdicts AS SELECT 1 AS id",
            "MATERIALIZED VIEW _token_verdicts",
        ),
        ("TABLE outbox_due (id bigint)", "TABLE outbox_due"),
        ("TYPE token_action AS ENUM ('x')", "TYPE token_action"),
        ("DOMAIN _kind AS text", "DOMAIN _kind"),
        (
            "FUNCTION _sign(action text, secret bytea, code text) RETURNS text LANGUAGE sql AS $$ SELECT code $$",
            "FUNCTION _sign(text, bytea, text)",
        ),
        (
            "FUNCTION _tokens_enqueue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            "FUNCTION _tokens_enqueue()",
        ),
        (
            "FUNCTION mailroom_redeem(text, text) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$",
            "FUNCTION mailroom_redeem(text, text)",
        ),
        ("TABLE attached (id bigint)", "TABLE attached"),
    ];
    let everything = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc) \
         + (SELECT count(*) FROM pg_type) + (SELECT count(*) FROM pg_roles) + (SELECT count(*) FROM pg_extension)";
    for (definition, name) in objects {
        other
            .batch_execute(&format!("CREATE {definition}"))
            .unwrap();
        let before = number(&mut client, everything);
        let error = client
            .batch_execute("CREATE EXTENSION mailroom")
            .expect_err(name);
        assert!(
            [
                &SqlState::DUPLICATE_TABLE,
                // The column's sequence gets another name, and the one of this name is not the extension's to dump.
                &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                &SqlState::DUPLICATE_OBJECT,
                &SqlState::DUPLICATE_FUNCTION
            ]
            .contains(&code(&error)),
            "{name}: {error:?}"
        );
        assert_eq!(number(&mut client, everything), before, "{name}");
        other.batch_execute(&format!("DROP {name}")).unwrap();
    }
    // Functions that could be called during the installation.
    client
        .batch_execute("CREATE EXTENSION mailroom; DROP EXTENSION mailroom")
        .unwrap();
    other
        .batch_execute(
            "CREATE FUNCTION _create_key_file(VARIADIC integer[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _request_worker(VARIADIC integer[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _random_code(VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _is_address(anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$; \
             CREATE FUNCTION _is_callers_role(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$",
        )
        .unwrap();
    client.batch_execute("CREATE EXTENSION mailroom").unwrap();
    traffic(&mut client, "public");
    // With a default for an additional argument, a call is ambiguous, and PostgreSQL calls neither function.
    other
        .batch_execute(
            "CREATE FUNCTION _random_secret(integer DEFAULT 1) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$",
        )
        .unwrap();
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    let before = number(&mut client, everything);
    let error = client
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::AMBIGUOUS_FUNCTION, "{error:?}");
    assert_eq!(number(&mut client, everything), before);
}

#[test]
fn any_schema_that_postgresql_takes_will_do() {
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let long = "x".repeat(63);
    let names = [
        "Mail Room",
        "sélect ünïcode",
        "select",
        "a.b",
        "100%s",
        "%1$I",
        "a;b",
        "a,b",
        "{x}",
        "- -",
        "pg temp",
        "7",
        "a\tb",
        "*",
        long.as_str(),
    ];
    for (index, name) in names.iter().enumerate() {
        let database = format!("app{index}");
        cluster
            .connect("postgres")
            .batch_execute(&format!("CREATE DATABASE {database}"))
            .unwrap();
        let mut client = cluster.connect(&database);
        let schema = format!("\"{name}\"");
        // PostgreSQL refuses this character in the name of a schema that it inserts into a script.
        if name.contains('$') {
            let error = client
                .batch_execute(&format!(
                    "CREATE SCHEMA {schema}; CREATE EXTENSION mailroom SCHEMA {schema}"
                ))
                .expect_err(name);
            assert!(
                format!("{error:?}").contains("invalid character in extension"),
                "{error:?}"
            );
            continue;
        }
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {schema}; CREATE EXTENSION mailroom SCHEMA {schema}; \
                 INSERT INTO {schema}.accounts (email, login) VALUES ('first@example.com', 'first')"
            ))
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        eventually("the worker's mail", || {
            (number(
                &mut client,
                &format!("SELECT count(*) FROM {schema}.outbox"),
            ) == 1)
                .then_some(())
        });
        client
            .batch_execute(&format!(
                "SELECT {schema}.mailroom_pause(); TRUNCATE {schema}.accounts, {schema}.tokens, {schema}.outbox"
            ))
            .unwrap();
        traffic(&mut client, &schema);
        client.batch_execute("DROP EXTENSION mailroom").unwrap();
    }
}

#[test]
fn a_renamed_schema_fails_until_it_is_renamed_back() {
    for new_worker in [false, true] {
        rename_and_back(new_worker);
    }
}

fn rename_and_back(new_worker: bool) {
    let cluster = Cluster::start(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '1s'",
    ]);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE app").unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute(
            "CREATE SCHEMA mail; CREATE EXTENSION mailroom SCHEMA mail; \
             SELECT mail.mailroom_pause(); \
             INSERT INTO mail.accounts (email, login) VALUES ('a@example.com', 'a'); \
             ALTER SCHEMA mail RENAME TO post",
        )
        .unwrap();
    // A worker that started under the old name recovers, and so does one that started under the new name.
    if new_worker {
        let worker = eventually("a worker", || crate::cluster::find_worker(&mut client));
        crate::cluster::signal("TERM", worker);
        crate::cluster::another_worker(&mut client, worker);
        eventually("its failure under the new name", || {
            cluster
                .log()
                .contains("cannot start its work: relation")
                .then_some(())
        });
    }
    // The statements in functions have the old name.
    let consume = "UPDATE post.tokens SET consumed_at = 1";
    let insert = "INSERT INTO post.accounts (email, login) VALUES ('b@example.com', 'b')";
    for statement in [consume, insert] {
        let error = client.batch_execute(statement).unwrap_err();
        assert!(
            [&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME].contains(&code(&error)),
            "{error:?}"
        );
        assert!(format!("{error:?}").contains("mail"), "{error:?}");
    }
    // Another schema with the old name is not taken for the extension's.
    client
        .batch_execute("CREATE SCHEMA mail; CREATE TABLE mail.accounts (id bigint, status text)")
        .unwrap();
    let error = client.batch_execute(consume).unwrap_err();
    assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
    let unused = "SELECT count(*) FROM post.tokens WHERE consumed_at IS NULL";
    assert_eq!(number(&mut client, unused), 1);
    client
        .batch_execute(
            "DROP SCHEMA mail CASCADE; ALTER SCHEMA post RENAME TO mail; SELECT mail.mailroom_resume()",
        )
        .unwrap();
    eventually("the worker's mail", || {
        (number(&mut client, "SELECT count(*) FROM mail.outbox") == 1).then_some(())
    });
}
