//! Links and codes that are guessed, forged and redeemed at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Random;
use crate::cluster::{Cluster, Stop, StopAtEnd, eventually, number};
use postgres::Client;

/// A recovery link as it was mailed, with its code.
struct Link {
    id: i64,
    token: String,
    code: String,
}

impl Link {
    /// Creates an account and a link for it.
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

    /// Returns a wrong code.
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

/// The transaction that makes a guess counts it, so a committed guess is still counted after a crash.
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

/// Many sessions guess at the same time, all with the same wrong code. Five of the committed guesses are counted, in
/// any order, and other sessions roll back in between.
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
        // The fifth guess gets `locked`, as do all later ones.
        assert_eq!(judged.into_inner(), 4);
        assert_eq!(link.count(&mut client), 5);
    }
}

/// Each GRANT, REVOKE and REINDEX makes the server rebuild the relation's cache entry and free the old one.
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

/// I7: a session can have the plans of its statements printed, constants included. They contain only constants that the
/// session itself passed.
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
    // The server breaks long lines.
    let printed: Vec<String> = printed.iter().collect();
    let printed = printed
        .iter()
        .flat_map(|text| text.split_whitespace())
        .collect::<Vec<_>>()
        .join(" ");
    // The server prints a constant as its bytes, as signed numbers.
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
    // The forged links did not change the genuine one.
    assert_eq!(link.count(&mut client), 0);
    assert_eq!(
        redeem(&mut client, &link.token, Some(&link.code)).unwrap(),
        "ok"
    );
}
