//! The guide on tenants with row-level security.

use super::People;
use crate::book::block;
use crate::cluster::number;

#[test]
fn the_guide_keeps_tenants_apart() {
    let mut people = People::start();
    let script = block("docs/guides/tenants.md", "sql");
    people
        .post
        .client
        .batch_execute("DROP POLICY application ON accounts")
        .unwrap();
    people.post.client.batch_execute(&script).unwrap();

    let mut sign_up = |tenant: &str, login: &str| {
        people
            .web
            .batch_execute(&format!("SET app.tenant = '{tenant}'"))
            .unwrap();
        people.web.execute(
            "INSERT INTO accounts (email, login) VALUES ($1, $2)",
            &[&format!("{}@example.com", login.replace('/', "-")), &login],
        )
    };
    assert_eq!(sign_up("acme", "acme/Ann").unwrap(), 1);
    assert_eq!(sign_up("umbrella", "umbrella/ann").unwrap(), 1);
    let stranger = sign_up("umbrella", "acme/bob").unwrap_err();
    assert_eq!(
        stranger.code(),
        Some(&postgres::error::SqlState::INSUFFICIENT_PRIVILEGE)
    );
    let own: String = people
        .web
        .query_one("SELECT string_agg(login, ',') FROM accounts", &[])
        .unwrap()
        .get(0);
    assert_eq!(own, "umbrella/ann");
    people.web.batch_execute("RESET app.tenant").unwrap();
    assert_eq!(number(&mut people.web, "SELECT count(*) FROM accounts"), 0);
    // The mails of both are sent, and their links are redeemed without a tenant.
    for address in ["acme-ann@example.com", "umbrella-ann@example.com"] {
        let mail = people.mail_to(address, "activation");
        let outcome: String = people
            .web
            .query_one(
                "SELECT outcome FROM mailroom_redeem($1)",
                &[&mail["variables"]["token"].as_str().unwrap()],
            )
            .unwrap()
            .get(0);
        assert_eq!(outcome, "ok");
    }
    let mut support = people.post.cluster.connect_as("app", "acme_support");
    assert_eq!(
        number(
            &mut support,
            "SELECT count(*) FROM outbox WHERE state = 'sent'"
        ),
        0
    );
    people
        .web
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', data => '{\"tenant\": \"acme\"}'); \
             SELECT mailroom_send('b@example.com', 'S', 'T', data => '{\"tenant\": \"umbrella\"}')",
        )
        .unwrap();
    people.post.wait_until_ended(4);
    assert_eq!(
        number(
            &mut support,
            "SELECT count(*) FROM outbox WHERE state = 'sent'"
        ),
        1
    );
    assert!(support.batch_execute("SELECT secrets FROM outbox").is_err());
}
