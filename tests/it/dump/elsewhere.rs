//! A dump or a data directory in another cluster, with and without the key file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{BUSY, contents, copy_key, dump, restore, run};
use crate::cluster::{Cluster, Stop, bin_directory, eventually, number};
use postgres::Client;

/// Creates a database with mail, and returns its tokens as (id, signed token).
///
/// Of ten token mails two are sent and three are claimed; one more mail has no token.
fn with_links(cluster: &Cluster) -> Vec<(i64, String)> {
    let mut client = cluster.create_database("app");
    client
        .batch_execute(
            "CREATE ROLE app LOGIN IN ROLE mailroom_app;
             INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i)
               FROM generate_series(1, 10) i;",
        )
        .unwrap();
    eventually("all of it in the outbox", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 10)
            .then_some(())
    });
    cluster
        .connect_as("app", "app")
        .batch_execute("SELECT mailroom_send('own@example.com', 'Subject', 'Text', priority => 1, item_key => 'own')")
        .unwrap();
    client
        .batch_execute(
            "SELECT mailroom_claim(5, '1 h', 'me');
             SELECT mailroom_mark_sent(id, claimant => 'me') FROM outbox WHERE state = 'claimed' ORDER BY id LIMIT 2;",
        )
        .unwrap();
    client
        .query(
            "SELECT id, mailroom_sign(action, secret, code) FROM tokens ORDER BY id",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

fn redeem(client: &mut Client, token: &str) -> String {
    client
        .query_one("SELECT outcome FROM mailroom_redeem($1)", &[&token])
        .unwrap()
        .get(0)
}

#[test]
fn delivery_goes_on_in_another_cluster() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    let sent: BTreeSet<i64> = old
        .connect("app")
        .query("SELECT token_id FROM outbox WHERE state = 'sent'", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(sent.len(), 2);
    // As in docs/operations/backup.md.
    let file = old.scratch().join("app.dump");
    let file = file.to_str().unwrap();
    run(&old, "pg_dump", &["--format=custom", "--file", file, "app"]);
    let new = Cluster::start(BUSY);
    copy_key(&old, &new);
    old.stop_server(Stop::Fast);
    run(&new, "createdb", &["--template=template0", "app"]);
    let options = ["--exit-on-error", "--single-transaction", "--dbname=app"];
    let restored = run(&new, "pg_restore", &[&options[..], &[file]].concat());
    assert_eq!(String::from_utf8_lossy(&restored.stderr), "");
    let mut client = new.connect("app");
    // Each mail that was not sent is in the outbox once. The worker has collected the tokens without being woken.
    eventually("the rest of the mail", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 9)
            .then_some(())
    });
    let claimed = client
        .query(
            "SELECT token_id, data ->> 'token', recipients[1] FROM mailroom_claim(100)",
            &[],
        )
        .unwrap();
    assert_eq!(claimed.len(), 9);
    for mail in &claimed {
        match mail.get::<_, Option<i64>>(0) {
            // The link is the same as before.
            Some(token) => assert!(links.contains(&(token, mail.get(1))) && !sent.contains(&token)),
            None => assert_eq!(mail.get::<_, String>(2), "own@example.com"),
        }
    }
    // Links that the old cluster sent are as good as new ones.
    for (_, link) in &links {
        assert_eq!(redeem(&mut client, link), "ok");
        assert_eq!(redeem(&mut client, link), "invalid");
    }
    let active = "SELECT count(*) FROM accounts WHERE status = 'active'";
    assert_eq!(number(&mut client, active), 10);
}

#[test]
fn a_copy_may_be_paused_in_the_session_that_restores_it() {
    let cluster = Cluster::start(BUSY);
    let links = with_links(&cluster);
    let file = cluster.scratch().join("app.dump");
    let file = file.to_str().unwrap();
    run(
        &cluster,
        "pg_dump",
        &["--format=custom", "--file", file, "app"],
    );
    let script = run(&cluster, "pg_restore", &["--file=-", file]).stdout;
    let script = String::from_utf8(script).unwrap();
    restore(
        &cluster,
        "copy",
        &format!("{script}SELECT public.mailroom_pause();\n"),
    );
    let mut copy = cluster.connect("copy");
    // The worker has read the queue since the restore ended, and leaves all mail alone.
    copy.batch_execute("SELECT mailroom_wake_worker()").unwrap();
    eventually("the worker to wait for mailroom_resume()", || {
        let waits = "SELECT coalesce(next_wake_for LIKE 'paused%', false) FROM mailroom_status()";
        let paused: bool = copy.query_one(waits, &[]).unwrap().get(0);
        paused.then_some(())
    });
    assert_eq!(number(&mut copy, "SELECT count(*) FROM pending"), 8);
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 3);
    copy.batch_execute("SELECT mailroom_resume()").unwrap();
    eventually("the mail", || {
        (number(&mut copy, "SELECT count(*) FROM outbox") == 11).then_some(())
    });
    // Both databases have the same key, but each has its own tokens.
    for database in ["app", "copy"] {
        let mut client = cluster.connect(database);
        assert_eq!(redeem(&mut client, &links[0].1), "ok", "{database}");
    }
}

#[test]
fn without_the_key_the_rows_come_back_and_say_what_is_missing() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    let script = dump(&old, "app", &[]);
    let new = Cluster::start(BUSY);
    let told = restore(&new, "app", &script);
    // There is one warning, from CREATE EXTENSION on, with the text of the error that signing raises.
    assert_eq!(told.matches("WARNING").count(), 1, "{told}");
    assert!(
        told.contains("mailroom.key\" does not exist") && told.contains("Put the file back"),
        "{told}"
    );
    let mut client = new.connect("app");
    assert_eq!(number(&mut client, "SELECT count(*) FROM accounts"), 10);
    // Mail without a token needs no key, and can be claimed.
    // The session that restored may still be ending.
    let claimed = eventually("the restore to end", || {
        client
            .query("SELECT recipients[1] FROM mailroom_claim(100)", &[])
            .ok()
    });
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].get::<_, String>(0), "own@example.com");
    // A function that needs the key fails, the worker logs the error, and nothing is lost.
    let error = client.query("SELECT mailroom_dequeue()", &[]).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "58P01");
    assert!(
        error.hint().unwrap().contains("Put the file back"),
        "{error}"
    );
    eventually("the worker to say so", || {
        new.log()
            .contains("mailroom worker could not take a batch (attempt 1, next in 1 s): key file")
            .then_some(())
    });
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 8);

    copy_key(&old, &new);
    new.reload();
    let scheduled =
        "SELECT count(*) FROM outbox WHERE token_id IS NOT NULL AND state = 'scheduled'";
    eventually("the mail", || {
        (number(&mut client, scheduled) == 8).then_some(())
    });
    drop(client);
    assert_eq!(redeem(&mut new.connect("app"), &links[0].1), "ok");

    // In a cluster with a key of its own, links that were sent before are void, and links that are sent from now on are
    // good.
    let other = Cluster::start(BUSY);
    drop(other.create_database("first"));
    assert_eq!(restore(&other, "app", &script), "");
    let mut client = other.connect("app");
    eventually("the mail", || {
        (number(&mut client, scheduled) == 8).then_some(())
    });
    let fresh = client
        .query("SELECT token_id, secrets ->> 'token' FROM outbox WHERE token_id IS NOT NULL AND state = 'scheduled'", &[])
        .unwrap();
    for mail in &fresh {
        let (token, signed): (i64, String) = (mail.get(0), mail.get(1));
        let (_, before) = links.iter().find(|(id, _)| *id == token).unwrap();
        assert_eq!(redeem(&mut client, before), "invalid");
        assert_eq!(redeem(&mut client, &signed), "ok");
    }
}

// needs: pg_upgrade
#[test]
fn pg_upgrade_takes_everything_but_the_key() {
    let old = Cluster::start(BUSY);
    let links = with_links(&old);
    // One more token, which no worker collects before the upgrade.
    old.stop_server(Stop::Fast);
    old.start_server_with("-c shared_preload_libraries=");
    old.connect("app")
        .batch_execute("SELECT mailroom_pause(); INSERT INTO accounts (email, login) VALUES ('last@example.com', 'last')")
        .unwrap();
    let everything = |client: &mut Client| {
        let mut all = contents(client);
        // Nothing is left out here, secrets included, because pg_upgrade keeps the database.
        let rows = client
            .query("SELECT t::text FROM outbox t ORDER BY id", &[])
            .unwrap();
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        all
    };
    let expected = everything(&mut old.connect("app"));
    old.stop_server(Stop::Fast);
    let new = Cluster::start(BUSY);
    new.stop_server(Stop::Fast);

    let bin: PathBuf = bin_directory("MAILROOM_PG_CONFIG");
    let scratch = new.scratch();
    let output = new
        .program("pg_upgrade")
        .current_dir(&scratch)
        .env("PGCTLTIMEOUT", "300")
        .arg("-b")
        .arg(&bin)
        .arg("-B")
        .arg(&bin)
        .arg("-d")
        .arg(old.data())
        .arg("-D")
        .arg(new.data())
        .args(["-U", "postgres", "-s"])
        .arg(&scratch)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    new.start_server();
    let mut client = new.connect("app");
    assert_eq!(everything(&mut client), expected);
    let error = client.query("SELECT mailroom_dequeue()", &[]).unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "58P01");
    copy_key(&old, &new);
    drop(client);
    let mut client = new.connect("app");
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    let last = "SELECT count(*) FROM outbox WHERE recipients = '{last@example.com}' AND state = 'scheduled'";
    eventually("the last mail", || {
        (number(&mut client, last) == 1).then_some(())
    });
    assert_eq!(redeem(&mut client, &links[0].1), "ok");
}
