//! What roles without privileges can do to mailroom, and what they can make mailroom do for them.

use super::code;
use crate::cluster::{Cluster, eventually, number};
use postgres::error::SqlState;

/// The tables that the worker and applications write.
const WRITTEN: [&str; 7] = [
    "accounts",
    "tokens",
    "pending",
    "outbox",
    "outbox_attempts",
    "link_requests",
    "job_runs",
];

#[test]
fn a_lock_that_any_role_can_take_stops_nobody() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE passer_by LOGIN; INSERT INTO budgets (period, amount) VALUES ('month', 100); \
             SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g')",
        )
        .unwrap();
    let mut passer_by = cluster.connect_as("app", "passer_by");
    // All plausible keys of locks: tables by their OIDs, groups by any hash.
    let locks: i64 = passer_by
        .query_one(
            "SELECT count(pg_advisory_lock(c.oid::integer, k.hash)) FROM pg_class c \
             CROSS JOIN (VALUES (0), (hashtext('g')), (hashtextextended('g', 0)::bit(32)::integer)) k (hash) \
             WHERE c.relname IN ('outbox', 'budgets', 'pending', 'tokens', 'accounts')",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(locks, 15);
    passer_by
        .batch_execute("SELECT pg_advisory_lock(hashtextextended('g', 0)), pg_advisory_lock(0), pg_advisory_lock(hashtext('g'))")
        .unwrap();
    let take = "SELECT _consume_budget(array_fill(1, ARRAY[10]), false)::bigint";
    assert_eq!(number(&mut client, take), 10);
    let claim = "SELECT count(*) FROM mailroom_claim_group(group_key => 'g')";
    assert_eq!(number(&mut client, claim), 1);
    let extend =
        "SELECT count(*) FROM outbox WHERE state = 'claimed' AND mailroom_extend(id, '1 h')";
    assert_eq!(number(&mut client, extend), 1);
}

#[test]
fn a_placeholder_of_a_plain_role_is_no_setting() {
    // Without preloading, the first call loads the library, which finds the settings that the session wrote before.
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE ROLE sender LOGIN IN ROLE mailroom_collector; \
             INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')",
        )
        .unwrap();
    let attempt = "SET mailroom.link_base_url = 'https://evil.example.com'; SET mailroom.key_file = '/dev/null'; \
         SET mailroom.activation_ttl = '2d'; SET mailroom.requests_per_hour = 1000000; SET mailroom.channel = 'evil'";
    let mut sender = cluster.connect_as("app", "sender");
    sender.batch_execute(attempt).unwrap();
    sender.batch_execute("SELECT mailroom_collect()").unwrap();
    for setting in ["link_base_url", "channel"] {
        let value: String = sender
            .query_one(
                &format!("SELECT current_setting('mailroom.{setting}')"),
                &[],
            )
            .unwrap()
            .get(0);
        assert!(!value.contains("evil"), "{setting}: {value}");
    }
    let link = number(
        &mut client,
        "SELECT count(*) FROM outbox WHERE secrets ? 'link' OR data::text LIKE '%evil%'",
    );
    assert_eq!(link, 0);
    let mut web = cluster.connect_as("app", "web");
    web.batch_execute(attempt).unwrap();
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    assert_eq!(
        number(
            &mut client,
            "SELECT max(expires_at - created_at) FROM tokens"
        ),
        86_400
    );
    // Nor after the library was loaded.
    let error = web
        .batch_execute("SET mailroom.recovery_ttl = '1d'")
        .unwrap_err();
    assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE);
}

#[test]
fn a_row_of_somebody_elses_is_not_taken_for_an_account() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE chief LOGIN IN ROLE mailroom_admin; CREATE SCHEMA chief AUTHORIZATION chief; \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    let mut chief = cluster.connect_as("app", "chief");
    chief
        .batch_execute(
            "CREATE TABLE chief.accounts (id bigint, email text, login text, status public.account_status); \
             CREATE TABLE chief.tokens (id bigint, account bigint, action public.token_action, consumed_at bigint)",
        )
        .unwrap();
    for trigger in [
        "AFTER INSERT ON chief.accounts REFERENCING NEW TABLE AS new_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_issue_activation()",
        "AFTER UPDATE ON chief.accounts REFERENCING OLD TABLE AS old_accounts NEW TABLE AS new_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_revoke_tokens()",
        "AFTER UPDATE ON chief.tokens FOR EACH ROW EXECUTE FUNCTION public._tokens_activate_account()",
        "AFTER INSERT ON chief.tokens REFERENCING NEW TABLE AS new_tokens FOR EACH STATEMENT EXECUTE FUNCTION public._tokens_enqueue()",
        "AFTER DELETE ON chief.accounts REFERENCING OLD TABLE AS old_accounts FOR EACH STATEMENT EXECUTE FUNCTION public._accounts_forget()",
    ] {
        let error = chief
            .batch_execute(&format!("CREATE TRIGGER mine {trigger}"))
            .expect_err(trigger);
        assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
    }
    // Members of mailroom_admin may create triggers with the functions of mailroom_attach on any table. Writes then
    // fail if the table is not attached, or if its columns are not text.
    chief
        .batch_execute(
            "CREATE TYPE chief.evil AS (x integer); \
             CREATE FUNCTION chief.evil(chief.evil) RETURNS text LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'evil was called by %', current_user; END $$; \
             CREATE CAST (chief.evil AS text) WITH FUNCTION chief.evil(chief.evil); \
             CREATE TABLE chief.evils (email chief.evil); \
             CREATE TRIGGER mailroom_insert AFTER INSERT ON chief.evils REFERENCING NEW TABLE AS new_rows \
                 FOR EACH STATEMENT EXECUTE FUNCTION public._attached_insert()",
        )
        .unwrap();
    let error = chief
        .batch_execute("INSERT INTO chief.evils VALUES (ROW(1))")
        .unwrap_err();
    assert_eq!(
        code(&error),
        &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error:?}"
    );
    chief
        .batch_execute(
            "CREATE TRIGGER mailroom_email AFTER UPDATE ON chief.evils FOR EACH ROW \
                 WHEN (OLD.email IS DISTINCT FROM NEW.email) EXECUTE FUNCTION public._attached_update(); \
             CREATE TRIGGER mailroom_login AFTER UPDATE ON chief.evils FOR EACH ROW \
                 WHEN (OLD.email IS DISTINCT FROM NEW.email) EXECUTE FUNCTION public._attached_update()",
        )
        .unwrap();
    let error = chief
        .batch_execute("INSERT INTO chief.evils VALUES (ROW(1))")
        .unwrap_err();
    assert_eq!(
        code(&error),
        &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "{error:?}"
    );
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 1);
}

#[test]
fn rights_on_a_table_are_no_way_to_more() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_timeout = 0"]);
    client
        .batch_execute(
            "CREATE ROLE mallory LOGIN IN ROLE mailroom_admin; CREATE ROLE web LOGIN IN ROLE mailroom_app; \
             CREATE SCHEMA mallory AUTHORIZATION mallory; GRANT USAGE ON SCHEMA mallory TO PUBLIC",
        )
        .unwrap();
    // A member of mailroom_admin may neither change the extension nor become another role.
    let mut mallory = cluster.connect_as("app", "mallory");
    mallory
        .batch_execute(
            "CREATE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
        )
        .unwrap();
    for attempt in [
        "SET ROLE mailroom_definer",
        "GRANT mailroom_definer TO mallory",
        "ALTER FUNCTION _tokens_enqueue() SECURITY INVOKER",
        "ALTER FUNCTION _tokens_enqueue() SET search_path = mallory",
        "ALTER FUNCTION mailroom_redeem(text, text) OWNER TO mallory",
        "CREATE OR REPLACE FUNCTION public._scheduled(messages public._message[]) RETURNS TABLE (ordinal integer, message_id uuid, id bigint, enqueued_by name, is_same boolean) LANGUAGE sql AS 'SELECT NULL::integer, NULL::uuid, NULL::bigint, NULL::name, NULL::boolean'",
        "DROP FUNCTION mailroom_peek(text)",
        "CREATE TRIGGER mine BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine BEFORE INSERT ON tokens FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine INSTEAD OF UPDATE ON _own_changes FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE TRIGGER mine INSTEAD OF INSERT ON _new_mail FOR EACH ROW EXECUTE FUNCTION mallory.trap()",
        "CREATE RULE mine AS ON INSERT TO outbox DO ALSO NOTIFY mine",
        "ALTER TABLE outbox ALTER kind SET DEFAULT mallory.trap()",
        "ALTER TABLE tokens ADD CHECK (true)",
        "CREATE INDEX ON tokens (code)",
        "CREATE POLICY mine ON tokens USING (true)",
        "CREATE TABLE mallory.mine (account bigint REFERENCES accounts)",
        "CREATE TABLE mallory.mine () INHERITS (accounts)",
        "TRUNCATE tokens",
        "SELECT mailroom_rotate_key()",
        "ALTER ROLE mallory SUPERUSER",
    ] {
        let error = mallory.batch_execute(attempt).expect_err(attempt);
        assert_eq!(
            code(&error),
            &SqlState::INSUFFICIENT_PRIVILEGE,
            "{attempt}: {error:?}"
        );
    }
    // mailroom_definer has no privilege on a table that mailroom_admin lacks, so functions with its rights give the
    // members of mailroom_admin nothing.
    let excess = number(
        &mut client,
        "SELECT count(*) FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) x \
         WHERE x.grantee = 'mailroom_definer'::regrole AND c.relkind IN ('r', 'v') \
         AND c.relowner <> x.grantee \
         AND NOT has_table_privilege('mailroom_admin', c.oid, x.privilege_type)",
    );
    assert_eq!(excess, 0);

    // Even with TRIGGER, which only a superuser can grant, a role gets no superuser's rights from what the application
    // and the worker do.
    client
        .batch_execute(&format!(
            "GRANT TRIGGER ON {} TO mallory",
            WRITTEN.join(", ")
        ))
        .unwrap();
    mallory
        .batch_execute(
            "CREATE TABLE mallory.seen (who name, which name); GRANT INSERT ON mallory.seen TO PUBLIC; \
             CREATE OR REPLACE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN \
                 BEGIN \
                     RESET SESSION AUTHORIZATION; \
                     RESET ROLE; \
                     ALTER ROLE mallory SUPERUSER; \
                 EXCEPTION WHEN OTHERS THEN NULL; \
                 END; \
                 BEGIN \
                     PERFORM public.mailroom_sign('activation', sha256('x')); \
                     INSERT INTO mallory.seen VALUES (current_user, 'signed'); \
                 EXCEPTION WHEN OTHERS THEN NULL; \
                 END; \
                 INSERT INTO mallory.seen VALUES (current_user, TG_RELID::regclass::text); \
                 RETURN NULL; \
             END $$",
        )
        .unwrap();
    // A transaction for each: with locks on several tables it could deadlock with the worker.
    for table in WRITTEN {
        mallory
            .batch_execute(&format!(
                "CREATE TRIGGER mine AFTER INSERT OR UPDATE OR DELETE ON public.{table} FOR EACH ROW EXECUTE FUNCTION mallory.trap()"
            ))
            .unwrap();
    }
    let mut web = cluster.connect_as("app", "web");
    web.batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    eventually("the worker's mail", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
    let token: String = client
        .query_one("SELECT secrets ->> 'token' FROM outbox", &[])
        .unwrap()
        .get(0);
    web.batch_execute("SELECT mailroom_request_recovery('a@example.com')")
        .unwrap();
    web.execute("SELECT mailroom_redeem($1)", &[&token])
        .unwrap();
    web.batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T', item_key => 'k'); SELECT mailroom_cancel_item('k')")
        .unwrap();
    eventually("the answer to the request", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    let seen: Vec<(String, String)> = client
        .query(
            "SELECT DISTINCT who::text, which::text FROM mallory.seen ORDER BY 1, 2",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    for (who, which) in &seen {
        assert!(
            ["mailroom_definer", "mailroom_collector", "web"].contains(&who.as_str()),
            "{which} was written as {who}"
        );
        // mailroom_collector may sign; nothing that the application reaches does.
        assert!(
            which != "signed" || who == "mailroom_collector",
            "{who} signs"
        );
    }
    for expected in ["mailroom_definer", "mailroom_collector", "web"] {
        assert!(
            seen.iter().any(|(who, _)| who == expected),
            "{expected}: {seen:?}"
        );
    }
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM pg_roles WHERE rolname = 'mallory' AND rolsuper"
        ),
        0
    );
}

#[test]
fn a_sender_writes_no_link_and_reopens_no_mail() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "CREATE ROLE relay LOGIN IN ROLE mailroom_sender; CREATE ROLE boss LOGIN IN ROLE mailroom_admin; \
             INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); SELECT mailroom_collect(); \
             SELECT mailroom_send('b@example.com', 'S', 'T')",
        )
        .unwrap();
    let mut relay = cluster.connect_as("app", "relay");
    let claim = "SELECT count(mailroom_mark_sent(id)) FROM mailroom_claim(1)";
    // The link goes out first: it was written first.
    relay.batch_execute(claim).unwrap();
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('c@example.com', 'c'); SELECT mailroom_collect()")
        .unwrap();
    let attempts = [
        "UPDATE outbox SET secrets = '{\"link\": \"https://evil.example.com\"}' WHERE state = 'scheduled' AND token_id IS NOT NULL",
        "UPDATE outbox SET state = 'scheduled', ended_at = NULL WHERE state = 'sent'",
        "UPDATE outbox SET state = 'claimed', claimed_until = now() + interval '1 h', ended_at = NULL WHERE state = 'sent'",
    ];
    for attempt in attempts {
        let error = relay.batch_execute(attempt).expect_err(attempt);
        assert_eq!(code(&error), &SqlState::INSUFFICIENT_PRIVILEGE, "{error:?}");
        assert!(!format!("{error:?}").contains("evil"), "{error:?}");
    }
    // It may still claim and settle what is there.
    relay
        .batch_execute("SELECT count(mailroom_mark_error(id, 'no')) FROM mailroom_claim(1); SELECT count(mailroom_mark_sent(id)) FROM mailroom_claim(9)")
        .unwrap();
    let mut boss = cluster.connect_as("app", "boss");
    boss.batch_execute(attempts[1]).unwrap();
}
