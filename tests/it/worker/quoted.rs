//! What an application's trigger quotes of a mail: neither secrets nor addresses reach the tables that a monitor reads,
//! nor the log.

use super::insert_accounts;
use crate::cluster::{Cluster, eventually, number};

/// A trigger of the application quotes the row of a mail with a link.
#[test]
fn what_a_trigger_quotes_of_a_mail_is_masked() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    client
        .batch_execute(
            "SELECT mailroom_pause(); \
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused: %', NEW; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW \
             WHEN (NEW.recipients::text LIKE '%bad%' AND NEW.state = 'scheduled') EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    insert_accounts(&mut client, "bad", 2);
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    // None of them can be written. Another row that can be written shows that the rows are at fault.
    eventually("a failure in job_runs", || {
        let failed = "SELECT count(*) FROM job_runs WHERE error LIKE 'refused: %[token]%'";
        (number(&mut client, failed) > 0).then_some(())
    });
    assert!(cluster.log().contains("[token]"));
    insert_accounts(&mut client, "good", 1);
    eventually("the others to end", || {
        let ended = "SELECT count(*) FROM outbox WHERE last_error LIKE 'refused: %[token]%'";
        (number(&mut client, ended) == 2).then_some(())
    });
    let secrets =
        "SELECT string_agg(secrets ->> 'token', ' ') FROM outbox WHERE secrets IS NOT NULL";
    let token: String = eventually("the one that can be written", || {
        client.query_one(secrets, &[]).unwrap().get(0)
    });
    let like_token = |text: &str| {
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        text.split(|c| !is_of_token(c))
            .any(|word| word.len() == token.len())
    };
    assert!(like_token(&token));
    let told = "SELECT concat((SELECT string_agg(last_error, ' ') FROM outbox), (SELECT string_agg(error, ' ') FROM job_runs))";
    let told: String = client.query_one(told, &[]).unwrap().get(0);
    assert!(!like_token(&told), "{told}");
    let lines = cluster.log();
    let of_worker = lines.lines().filter(|line| line.contains("WARNING"));
    for line in of_worker {
        assert!(!like_token(line), "{line}");
    }
}

#[test]
fn an_address_that_a_trigger_quotes_is_masked() {
    // An error that a row is the cause of, and one that another row may meet as well.
    for sqlstate in ["P0001", "55000"] {
        let (cluster, mut client) = Cluster::start_with_app(&[]);
        client
            .batch_execute(&format!(
                "SELECT mailroom_pause(); \
                 CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     RAISE EXCEPTION '% is on the block list', NEW.recipients[1] \
                     USING ERRCODE = '{sqlstate}', HINT = 'Ask \"' || NEW.recipients[1] || '\" for another.'; \
                 END $$; \
                 CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW \
                 WHEN (NEW.recipients::text LIKE '%bad%' AND NEW.state = 'scheduled') EXECUTE FUNCTION refuse()",
            ))
            .unwrap();
        insert_accounts(&mut client, "bad", 2);
        client.batch_execute("SELECT mailroom_resume()").unwrap();
        eventually("a failure in job_runs", || {
            let failed = format!(
                "SELECT count(*) FROM job_runs WHERE error = '[address] is on the block list [{sqlstate}]'"
            );
            (number(&mut client, &failed) > 0).then_some(())
        });
        insert_accounts(&mut client, "good", 1);
        eventually("the others to end", || {
            let ended = format!(
                "SELECT count(*) FROM outbox WHERE last_error = '[address] is on the block list (SQLSTATE {sqlstate})'"
            );
            (number(&mut client, &ended) == 2).then_some(())
        });
        let log = cluster.log();
        assert!(log.contains("[address] is on the block list"), "{log}");
        let of_worker = log.lines().filter(|line| line.contains("mailroom worker"));
        for line in of_worker {
            assert!(!line.contains("@example.com"), "{line}");
        }
    }
}
