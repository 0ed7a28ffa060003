//! Links and requests under attack: guesses that are rolled back or cut off, many at one link at once, forged
//! links by the thousand; and requests from the call to the mail, with the worker that answers them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cluster::{Cluster, Stop, StopAtEnd, eventually, number};
use postgres::Client;

/// A recovery link as it was mailed, and its code.
struct Link {
    id: i64,
    token: String,
    code: String,
}

impl Link {
    /// A new one, of a new account.
    fn recovery(client: &mut Client, login: &str) -> Self {
        let row = client
            .query_one(
                "WITH account AS ( \
                     INSERT INTO accounts (email, login, status) \
                     VALUES ($1 || '@example.com', $1, 'active') RETURNING id \
                 ), token AS ( \
                     INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM account \
                     RETURNING * \
                 ) SELECT id, mailroom_sign(action, secret, code), code FROM token",
                &[&login],
            )
            .unwrap();
        Self {
            id: row.get(0),
            token: row.get(1),
            code: row.get(2),
        }
    }

    /// A code that is not this one's.
    fn wrong(&self) -> String {
        format!("{:05}", (self.code.parse::<u32>().unwrap() + 1) % 100_000)
    }

    fn count(&self, client: &mut Client) -> i64 {
        number(
            client,
            &format!("SELECT wrong_codes FROM tokens WHERE id = {}", self.id),
        )
    }
}

fn redeem(
    client: &mut impl postgres::GenericClient,
    token: &str,
    code: Option<&str>,
) -> Result<String, postgres::Error> {
    Ok(client
        .query_one(
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            &[&token, &code],
        )?
        .get(0))
}

/// Guesses are counted by the transaction that makes them: what is committed stays, whatever the server's end.
#[test]
fn a_crash_takes_back_no_committed_guess() {
    for library in ["mailroom", ""] {
        let library = format!("shared_preload_libraries = '{library}'");
        let (cluster, mut client) =
            Cluster::start_with_app(&[&library, "wal_consistency_checking = all"]);
        let link = Link::recovery(&mut client, "a");
        client.batch_execute("CHECKPOINT").unwrap();
        for guess in 1..=5 {
            let outcome = redeem(&mut client, &link.token, Some(&link.wrong())).unwrap();
            assert_eq!(outcome, if guess < 5 { "wrong_code" } else { "locked" });
            cluster.stop_server(Stop::Immediate);
            cluster.start_server();
            client = cluster.connect("app");
            assert_eq!(link.count(&mut client), guess, "after a crash");
        }
        assert_eq!(
            redeem(&mut client, &link.token, Some(&link.code)).unwrap(),
            "locked"
        );
        cluster.verify();
    }
}

#[test]
fn a_standby_knows_the_guesses() {
    let (primary, mut client) = Cluster::start_with_app(&["wal_consistency_checking = all"]);
    let link = Link::recovery(&mut client, "a");
    let standby = Cluster::follow(&primary);
    redeem(&mut client, &link.token, Some(&link.wrong())).unwrap();
    let mut reader = standby.connect("app");
    eventually("the count on the standby", || {
        (link.count(&mut reader) == 1).then_some(())
    });
    // A peek writes nothing, so a standby that has the key can answer it.
    let outcome: String = reader
        .query_one("SELECT outcome FROM mailroom_peek($1)", &[&link.token])
        .unwrap()
        .get(0);
    assert_eq!(outcome, "code_required");
    primary.verify();
}

/// Guesses of many sessions at once, all with the same wrong code: of those that commit five are judged, whatever their
/// order, and whatever other sessions roll back in between.
#[test]
fn guesses_at_the_same_time_are_all_counted() {
    const SESSIONS: usize = 16;
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    for round in 0..10 {
        let link = Link::recovery(&mut client, &format!("a{round}"));
        let judged = AtomicUsize::new(0);
        let start = Barrier::new(SESSIONS);
        std::thread::scope(|scope| {
            for session in 0..SESSIONS {
                let (cluster, link, judged, start) = (&cluster, &link, &judged, &start);
                scope.spawn(move || {
                    let mut client = cluster.connect("app");
                    start.wait();
                    let mut transaction = client.transaction().unwrap();
                    let outcome =
                        redeem(&mut transaction, &link.token, Some(&link.wrong())).unwrap();
                    if session % 4 == 0 {
                        transaction.rollback().unwrap();
                        return;
                    }
                    transaction.commit().unwrap();
                    if outcome == "wrong_code" {
                        judged.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_eq!(outcome, "locked");
                    }
                });
            }
        });
        // The fifth is told that it was the last.
        assert_eq!(judged.into_inner(), 4);
        assert_eq!(link.count(&mut client), 5);
    }
}

/// The server reads the description of a table anew after each of these, and the one of before is gone.
#[test]
fn a_link_is_judged_while_keys_are_rebuilt_and_rights_change() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let link = Link::recovery(&mut client, "a");
    let is_over = AtomicBool::new(false);
    let peeks = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = cluster.connect("app");
                while !is_over.load(Ordering::Relaxed) {
                    let outcome: String = client
                        .query_one("SELECT outcome FROM mailroom_peek($1)", &[&link.token])
                        .unwrap()
                        .get(0);
                    assert_eq!(outcome, "code_required");
                    peeks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop_at_end = StopAtEnd(&is_over);
        for round in 0..300 {
            for (change, towards) in [("GRANT SELECT", "TO"), ("REVOKE SELECT", "FROM")] {
                let mut transaction = client.transaction().unwrap();
                for table in ["accounts", "tokens"] {
                    transaction
                        .batch_execute(&format!("{change} ON {table} {towards} mailroom_monitor"))
                        .unwrap();
                }
                transaction.commit().unwrap();
            }
            if round % 30 == 0 {
                for index in ["tokens_secret_key", "tokens_pkey", "accounts_pkey"] {
                    client
                        .batch_execute(&format!("REINDEX INDEX CONCURRENTLY {index}"))
                        .unwrap();
                }
            }
        }
    });
    assert!(peeks.into_inner() > 0);
}

#[test]
fn of_32_sessions_that_redeem_one_link_one_wins() {
    const SESSIONS: usize = 32;
    const ROUNDS: usize = 100;
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    let links: Vec<Link> = (0..ROUNDS)
        .map(|round| Link::recovery(&mut client, &format!("a{round}")))
        .collect();
    let wins: Vec<AtomicUsize> = links.iter().map(|_| AtomicUsize::new(0)).collect();
    let start = Barrier::new(SESSIONS);
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let mut client = cluster.connect("app");
                for (link, wins) in links.iter().zip(&wins) {
                    start.wait();
                    match redeem(&mut client, &link.token, Some(&link.code))
                        .unwrap()
                        .as_str()
                    {
                        "ok" => {
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                        other => assert_eq!(other, "invalid"),
                    }
                }
            });
        }
    });
    for (round, wins) in wins.iter().enumerate() {
        assert_eq!(wins.load(Ordering::Relaxed), 1, "round {round}");
    }
    cluster.verify();
}

/// I7: a session may have its own plans printed, constants and all: there are none in them that it did not bring.
#[test]
fn what_a_session_makes_the_server_print_holds_no_code() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    client
        .batch_execute("CREATE ROLE web LOGIN IN ROLE mailroom_app")
        .unwrap();
    let link = Link::recovery(&mut client, "a");
    let secret: Vec<u8> = client
        .query_one("SELECT secret FROM tokens WHERE id = $1", &[&link.id])
        .unwrap()
        .get(0);
    let (sender, printed) = std::sync::mpsc::channel();
    let mut web = postgres::Config::new()
        .host_path(cluster.socket())
        .user("web")
        .dbname("app")
        .notice_callback(move |notice| {
            let detail = notice.detail().unwrap_or_default();
            let _ = sender.send(format!("{} {detail}", notice.message()));
        })
        .connect(postgres::NoTls)
        .unwrap();
    web.batch_execute(
        "SET client_min_messages = debug5; SET debug_pretty_print = off; \
         SET debug_print_parse = on; SET debug_print_rewritten = on; SET debug_print_plan = on",
    )
    .unwrap();
    for code in [Some(link.wrong()), None] {
        redeem(&mut web, &link.token, code.as_deref()).unwrap();
        web.query("SELECT mailroom_peek($1)", &[&link.token])
            .unwrap();
    }
    web.execute("SELECT mailroom_request_recovery('a@example.com')", &[])
        .unwrap();
    drop(web);
    // Long lines are broken.
    let printed: Vec<String> = printed.iter().collect();
    let printed = printed
        .iter()
        .flat_map(|text| text.split_whitespace())
        .collect::<Vec<_>>()
        .join(" ");
    // A constant is printed as its bytes, signed.
    let bytes = |value: &[u8]| {
        value
            .iter()
            .map(|byte| byte.cast_signed().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(
        printed.contains(&bytes(b"a@example.com")),
        "what it brought"
    );
    assert!(!printed.contains(&bytes(link.code.as_bytes())));
    assert!(!printed.contains(&bytes(&secret[..8])));
}

/// Random numbers that are the same in every run: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn characters(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length)
            .map(|_| char::from(alphabet[self.below(alphabet.len())]))
            .collect()
    }
}

#[test]
fn ten_thousand_forged_links_and_codes_open_nothing() {
    const URL_SAFE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (_cluster, mut client) = Cluster::start_with_app(&[]);
    let link = Link::recovery(&mut client, "a");
    let statement = client
        .prepare("SELECT r.outcome, p.outcome FROM mailroom_redeem($1, $2) r, mailroom_peek($1) p")
        .unwrap();
    let mut random = Random(0x006d_6169_6c72_6f6f);
    for _ in 0..10_000 {
        let mut forged: Vec<char> = link.token.chars().collect();
        match random.below(4) {
            0 => {
                let length = random.below(200);
                forged = random.characters(URL_SAFE, length).chars().collect();
            }
            1 => forged = random.characters(URL_SAFE, 86).chars().collect(),
            2 => {
                let other = random.characters(b"AZaz09-_+/=. \n~", 1);
                forged[random.below(86)] = other.chars().next().unwrap();
            }
            _ => {
                let (from, to) = (random.below(86), random.below(86));
                forged.swap(from, to);
            }
        }
        let forged: String = forged.into_iter().collect();
        if forged == link.token {
            continue;
        }
        let code = match random.below(3) {
            0 => link.code.clone(),
            1 => random.characters(b"0123456789", 5),
            _ => {
                let length = random.below(9);
                random.characters(b"0123456789+- x", length)
            }
        };
        let row = client.query_one(&statement, &[&forged, &code]).unwrap();
        let outcomes: (&str, &str) = (row.get(0), row.get(1));
        assert_eq!(outcomes, ("invalid", "invalid"), "{forged} {code}");
    }
    // Nor did they do anything to the one they were made from.
    assert_eq!(link.count(&mut client), 0);
    assert_eq!(
        redeem(&mut client, &link.token, Some(&link.code)).unwrap(),
        "ok"
    );
}

#[test]
fn the_worker_answers_requests() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; \
             INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    let mut web = cluster.connect_as("app", "web");
    for address in ["nobody@example.com", "A@example.com", "a@example.com"] {
        web.execute("SELECT mailroom_request_recovery($1)", &[&address])
            .unwrap();
    }
    let row = eventually("the mail", || {
        client
            .query_opt(
                "SELECT secrets->>'token', secrets->>'code' FROM outbox WHERE state = 'scheduled'",
                &[],
            )
            .unwrap()
    });
    eventually("an answer to all", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 1);
    let (token, code): (String, String) = (row.get(0), row.get(1));
    let outcome: String = web
        .query_one(
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            &[&token, &code],
        )
        .unwrap()
        .get(0);
    assert_eq!(outcome, "ok");
    // The mail was not sent, and need not be any more.
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'cancelled' AND secrets IS NULL"
        ),
        1
    );
}

/// Most of what is announced comes to nothing, and the rest is not left to the poll floor.
#[test]
fn strangers_do_not_hold_up_those_behind_them() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "mailroom.batch_limit = 10"]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
             BEGIN; \
             SELECT mailroom_request_recovery(i || '@example.com') FROM generate_series(1, 35) i; \
             SELECT mailroom_request_recovery('a@example.com'); \
             COMMIT",
        )
        .unwrap();
    eventually("the mail", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 1)
            .then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
}

#[test]
fn a_request_for_an_account_in_use_is_answered_later() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '100ms'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             VALUES ('a@example.com', 'a', 'active'), ('b@example.com', 'b', 'active')",
        )
        .unwrap();
    let mut holder = cluster.connect("app");
    holder
        .batch_execute("BEGIN; UPDATE accounts SET login = 'c' WHERE login = 'a'")
        .unwrap();
    for address in ["a@example.com", "b@example.com"] {
        client
            .execute("SELECT mailroom_request_recovery($1)", &[&address])
            .unwrap();
    }
    // The other one's mail goes all the same.
    let mails = "SELECT count(*) FROM outbox WHERE state = 'scheduled'";
    eventually("the other mail", || {
        (number(&mut client, mails) == 1).then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 1);
    holder.batch_execute("COMMIT").unwrap();
    eventually("the mail", || {
        (number(&mut client, mails) == 2).then_some(())
    });
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL"
        ),
        0
    );
}

/// Requests, redemptions, suspensions and new addresses at once: no deadlock, no two open links.
#[test]
fn everything_at_once_ends_in_no_deadlock() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.request_interval = 0",
        "mailroom.requests_per_hour = 1000",
        "mailroom.batch_timeout = 0",
        "deadlock_timeout = '100ms'",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             SELECT i || '@example.com', i, 'active' FROM generate_series(1, 5) i",
        )
        .unwrap();
    std::thread::scope(|scope| {
        for session in 0..8_u64 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut client = cluster.connect("app");
                let mut random = Random(session + 1);
                for _ in 0..100 {
                    let account = i64::try_from(random.below(5) + 1).unwrap();
                    let statement = match random.below(4) {
                        0 => {
                            "SELECT r.outcome FROM tokens t, mailroom_redeem(mailroom_sign(t.action, t.secret, t.code), t.code) r \
                             WHERE t.account = $1 AND t.consumed_at IS NULL AND t.revoked_at IS NULL"
                        }
                        1 => {
                            "UPDATE accounts SET status = CASE status WHEN 'active' THEN 'suspended' \
                             ELSE 'active' END::account_status WHERE id = $1"
                        }
                        _ => {
                            "SELECT mailroom_request_recovery(email)::text FROM accounts WHERE id = $1"
                        }
                    };
                    client.query(statement, &[&account]).unwrap();
                    let open = number(
                        &mut client,
                        "SELECT coalesce(max(n), 0) FROM ( \
                             SELECT count(*) n FROM tokens \
                             WHERE consumed_at IS NULL AND revoked_at IS NULL \
                             GROUP BY account, action) t",
                    );
                    assert!(open <= 1, "{open} open links for one account");
                }
            });
        }
    });
    assert!(!cluster.log().contains("deadlock"));
    assert!(
        number(
            &mut client,
            "SELECT count(*) FROM tokens WHERE consumed_at IS NOT NULL"
        ) > 0
    );
    cluster.verify();
}
