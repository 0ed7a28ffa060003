//! Files that become invalid while the server runs.

use super::{
    KEY_A, KEY_B, TALKATIVE, assert_tells_nothing, broken, key_file, mailed, register, shell, sign,
    told, verifies, write_key_file,
};
use crate::cluster::{Cluster, another_worker, eventually, number};

#[test]
fn a_bad_file_does_not_replace_good_keys_in_memory() {
    let cluster = Cluster::start(TALKATIVE);
    let mut client = cluster.create_database("app");
    let key = key_file(&cluster);
    let token = sign(&mut client);
    let kept = |cluster: &Cluster| {
        cluster
            .log()
            .matches("going on with the keys in memory")
            .count()
    };
    for (round, script) in [
        broken(&KEY_A[1..], "0600"),
        broken(KEY_A, "0644"),
        broken("", "0600"),
        "rm -f mailroom.key".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        shell(&cluster, "rm -f mailroom.key");
        shell(&cluster, script);
        for _ in 0..3 {
            assert_eq!(sign(&mut client), token);
            assert!(verifies(&mut client, &token));
        }
        // Logged once, and not sent to the client.
        assert_eq!(kept(&cluster), round + 1);
        // A session without keys in memory gets the error.
        let error = cluster
            .connect("app")
            .simple_query("SELECT mailroom_verify('', 'activation')")
            .unwrap_err();
        assert_tells_nothing(&told(&error), &[KEY_A, key.trim_end()]);
    }
    // A session notices a repair.
    write_key_file(&cluster, KEY_A);
    assert_ne!(sign(&mut client), token);
    assert!(!verifies(&mut client, &token));
    assert_tells_nothing(&cluster.log(), &[KEY_A, key.trim_end()]);
}

fn warnings(cluster: &Cluster) -> usize {
    cluster
        .log()
        .lines()
        .filter(|line| line.contains("WARNING") && line.contains("could not take a batch"))
        .count()
}

#[test]
fn a_worker_without_its_keys_says_so_once_and_loses_nothing() {
    let cluster = Cluster::start(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '100ms'",
    ]);
    let mut client = cluster.create_database("app");
    cluster.worker("app");
    let breakages = [
        "chmod 0640 mailroom.key".to_owned(),
        broken(&KEY_B[1..], "0600"),
        "rm mailroom.key".to_owned(),
    ];
    for (round, script) in breakages.iter().enumerate() {
        shell(&cluster, "cp -p mailroom.key safe.key");
        shell(&cluster, script);
        // A new worker has no keys in memory; the old one would continue with its keys.
        let worker = cluster.worker("app");
        crate::cluster::signal("TERM", worker);
        another_worker(&mut client, worker);
        cluster.worker("app");
        let failures = "SELECT count(*) FROM job_runs WHERE error IS NOT NULL";
        let before = number(&mut client, failures);
        for login in ["a", "b", "c"] {
            register(&mut client, &format!("{login}{round}"));
        }
        // More attempts than warnings.
        eventually("three failed batches", || {
            (number(&mut client, failures) >= before + 3).then_some(())
        });
        assert_eq!(
            warnings(&cluster),
            round + 1,
            "one warning for this breakage"
        );
        assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 3);
        let row = client
            .query_one(
                "SELECT error, collected FROM job_runs ORDER BY id DESC LIMIT 1",
                &[],
            )
            .unwrap();
        let error: String = row.get(0);
        assert!(error.contains("key file"), "{error}");
        assert_eq!(row.get::<_, i32>(1), 0);

        shell(&cluster, "chmod 0600 safe.key; mv -f safe.key mailroom.key");
        cluster.reload();
        for login in ["a", "b", "c"] {
            let token = mailed(&mut client, &format!("{login}{round}"));
            assert!(verifies(&mut client, &token));
        }
        assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 0);
        // Then the worker has logged this as well; the next round counts from here.
        eventually("the all-clear", || {
            (cluster.log().matches("works again").count() == round + 1).then_some(())
        });
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 9);
    assert_eq!(
        number(&mut client, "SELECT count(DISTINCT token_id) FROM outbox"),
        9
    );
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state <> 'scheduled'"
        ),
        0
    );
    let errors: String = client
        .query_one("SELECT string_agg(error, ' ') FROM job_runs", &[])
        .unwrap()
        .get(0);
    assert_tells_nothing(&errors, &[KEY_B, key_file(&cluster).trim_end()]);
    assert_tells_nothing(&cluster.log(), &[KEY_B, key_file(&cluster).trim_end()]);
}
