//! Limits on the size of a message, and that a large message affects no other (I8).

use crate::cluster::{Cluster, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};
use postgres::Client;
use postgres::error::SqlState;

/// Returns SQLSTATE, and constraint or else DETAIL, of the error that a statement must raise.
fn refused(client: &mut Client, statement: &str) -> (SqlState, String) {
    let error = client.batch_execute(statement).expect_err(statement);
    let error = error.as_db_error().expect(statement);
    let told = error.constraint().or(error.detail()).unwrap_or_default();
    (error.code().clone(), told.to_owned())
}

#[test]
fn i8_no_message_is_larger_than_the_setting() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute("CREATE ROLE shop LOGIN IN ROLE mailroom_app")
        .unwrap();
    let mut shop = cluster.connect_as("app", "shop");
    let invalid = SqlState::INVALID_PARAMETER_VALUE;

    // The limit of 10 MB applies to subject, bodies and data together.
    shop.batch_execute(
        "SELECT mailroom_send('a@example.com', 'S', repeat('x', 10 * 1024 * 1024 - 3)); \
         SELECT mailroom_send('a@example.com', 'S', repeat('x', 5 * 1024 * 1024), repeat('x', 5 * 1024 * 1024 - 3)); \
         SELECT mailroom_send('a@example.com', 'S', 'T', data => jsonb_build_object('a', repeat('x', 1024 * 1024 - 9)))",
    )
    .unwrap();
    let whole = "It has 10485761 octets, at most 10485760 are allowed.";
    for arguments in [
        "'S', repeat('x', 10 * 1024 * 1024 - 2)",
        "'S', body_html => repeat('x', 10 * 1024 * 1024 - 2)",
        "'S', repeat('x', 5 * 1024 * 1024), repeat('x', 5 * 1024 * 1024 - 2)",
        "'S', repeat('ü', 5 * 1024 * 1024 - 1)",
        "'S', repeat('x', 9 * 1024 * 1024), data => jsonb_build_object('a', repeat('x', 1024 * 1024 - 9))",
    ] {
        let told = refused(
            &mut shop,
            &format!("SELECT mailroom_send('a@example.com', {arguments})"),
        );
        assert_eq!(told, (invalid.clone(), whole.to_owned()), "{arguments}");
    }
    let told = refused(
        &mut shop,
        "SELECT mailroom_send_many(jsonb_build_array( \
             jsonb_build_object('recipients', 'a@example.com', 'subject', 'S', 'body_text', 'T'), \
             jsonb_build_object('recipients', 'a@example.com', 'subject', 'S', 'body_text', repeat('x', 10 * 1024 * 1024 - 2))))",
    );
    assert_eq!(told, (invalid.clone(), whole.to_owned()));
    let told = refused(
        &mut shop,
        "SELECT mailroom_send('a@example.com', 'S', 'T', data => jsonb_build_object('a', repeat('x', 1024 * 1024 - 8)))",
    );
    let data = "data has 1048577 octets as JSON, at most 1048576 are allowed.";
    assert_eq!(told, (invalid.clone(), data.to_owned()));

    // The same limits apply to an application that writes to the views directly.
    let view = SqlState::WITH_CHECK_OPTION_VIOLATION;
    for (columns, values) in [
        ("subject, body_text", "'S', repeat('x', 10 * 1024 * 1024)"),
        ("subject, body_html", "'S', repeat('x', 10 * 1024 * 1024)"),
        ("subject, body_text", "'', 'T'"),
        ("subject, body_text", "'S', ''"),
        ("subject, body_text, item_key", "'S', 'T', ''"),
        ("subject, body_text, group_key", "'S', 'T', ''"),
        ("subject, body_text, max_attempts", "'S', 'T', 1001"),
        ("subject, body_text, send_at", "'S', 'T', 'infinity'"),
        (
            "subject, body_text, expires_at",
            "'S', 'T', now() - interval '1 day'",
        ),
    ] {
        let statement = format!(
            "INSERT INTO _new_mail (kind, recipients, {columns}) VALUES ('x', '{{a@example.com}}', {values})"
        );
        assert_eq!(refused(&mut shop, &statement).0, view, "{statement}");
    }
    // An application cannot move `send_at` past `expires_at` either.
    shop.batch_execute(
        "SELECT mailroom_send('a@example.com', 'S', 'T', expires_at => now() + interval '1 day', item_key => 'k')",
    )
    .unwrap();
    let moved = "SELECT mailroom_reschedule_item('k', now() + interval '2 days')";
    assert_eq!(
        refused(&mut shop, moved).0,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
    );

    // A limit that is set for this database.
    client
        .batch_execute("ALTER DATABASE app SET mailroom.max_message_size = '20kB'")
        .unwrap();
    let mut shop = cluster.connect_as("app", "shop");
    shop.batch_execute("SELECT mailroom_send('a@example.com', 'S', repeat('x', 20 * 1024 - 3))")
        .unwrap();
    let told = refused(
        &mut shop,
        "SELECT mailroom_send('a@example.com', 'S', repeat('x', 20 * 1024))",
    );
    let told_of = "It has 20483 octets, at most 20480 are allowed.";
    assert_eq!(told, (invalid, told_of.to_owned()));
    let denied = refused(&mut shop, "SET mailroom.max_message_size = '100MB'").0;
    assert_eq!(denied, SqlState::INSUFFICIENT_PRIVILEGE);

    // Mail that is too large for a claim is refused from any writer, by any statement.
    let row =
        "INSERT INTO outbox (kind, recipients, subject, body_text, body_html, data) SELECT 'x'";
    let check = SqlState::CHECK_VIOLATION;
    for (statement, constraint) in [
        (
            format!("{row}, '{{a@example.com}}', 'S', repeat('x', 104857601), NULL, '{{}}'"),
            "outbox_body_must_not_exceed_100_mb",
        ),
        (
            format!("{row}, '{{a@example.com}}', 'S', 'T', repeat('x', 104857601), '{{}}'"),
            "outbox_body_must_not_exceed_100_mb",
        ),
        (
            format!("{row}, '{{a@example.com}}', repeat('x', 999), 'T', NULL, '{{}}'"),
            "outbox_subject_must_not_exceed_998_octets",
        ),
        (
            format!("{row}, ARRAY[repeat('a', 70000)], 'S', 'T', NULL, '{{}}'"),
            "outbox_addresses_must_not_exceed_64_kb",
        ),
        (
            format!(
                "{row}, '{{a@example.com}}', 'S', 'T', NULL, jsonb_build_object('a', repeat(E'\\x01', 200000))"
            ),
            "outbox_data_must_not_exceed_1_mb",
        ),
        (
            "UPDATE outbox SET body_text = repeat('x', 104857601)".to_owned(),
            "outbox_body_must_not_exceed_100_mb",
        ),
        (
            "UPDATE outbox SET data = jsonb_build_object('a', repeat('x', 1048576))".to_owned(),
            "outbox_data_must_not_exceed_1_mb",
        ),
    ] {
        let told = refused(&mut client, &statement);
        assert_eq!(told, (check.clone(), constraint.to_owned()), "{statement}");
    }
}

#[test]
fn i8_the_largest_messages_stop_nothing() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    // A superuser's mail, to which the setting does not apply: two bodies of 100 MB are claimed before the rest.
    post.client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, body_html, priority) \
             VALUES ('x', '{big@example.com}', 'S', repeat('x', 104857600), repeat('y', 104857600), -100)",
        )
        .unwrap();
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', repeat('x', 10000000)) FROM generate_series(1, 20)",
        )
        .unwrap();
    post.send(20);
    post.wait_for("state = 'sent' AND body_text = 'Text'", 20);
    post.wait_for("state = 'sent' AND length(body_text) = 10000000", 20);
    assert_eq!(
        number(
            &mut post.client,
            "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'"
        ),
        0
    );
}
