//! Dumps, publications and base backups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{contains, prepare, traffic};
use crate::cluster::number;

#[test]
fn a_dump_holds_neither_keys_nor_links() {
    let (cluster, mut client) = prepare();
    let (mut secrets, sessions) = traffic(&cluster, &mut client);
    drop(sessions);
    // Some of the mails are still to be sent, and have their secrets in the outbox.
    assert!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE secrets IS NOT NULL"
        ) > 0
    );
    // Codes are in tokens, which administrators may read: they are of no use without the link.
    secrets.codes.clear();
    for arguments in [
        vec!["app"],
        vec!["--inserts", "app"],
        vec!["-Fc", "-Z0", "app"],
    ] {
        let dump = cluster
            .program("pg_dump")
            .args(&arguments)
            .output()
            .unwrap();
        assert!(
            dump.status.success(),
            "{}",
            String::from_utf8_lossy(&dump.stderr)
        );
        assert!(contains(&dump.stdout, b"CREATE EXTENSION"));
        secrets.assert_not_in("the dump", &dump.stdout);
    }
    let globals = cluster
        .program("pg_dumpall")
        .arg("--globals-only")
        .output()
        .unwrap();
    assert!(globals.status.success());
    secrets.assert_not_in("the dump of globals", &globals.stdout);
}

#[test]
fn the_documented_publication_carries_no_secret_and_one_of_all_tables_does() {
    let (cluster, mut client) = prepare();
    let (secrets, sessions) = traffic(&cluster, &mut client);
    drop(sessions);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'The subject', 'T')")
        .unwrap();
    let mut decoded = |query: &str| -> Vec<u8> {
        client
            .query(query, &[])
            .unwrap()
            .iter()
            .flat_map(|row| row.get::<_, Vec<u8>>(0))
            .collect()
    };
    let published = decoded(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('cdc', NULL, NULL, \
             'proto_version', '1', 'publication_names', 'outbox_cdc')",
    );
    assert!(contains(&published, b"The subject"));
    secrets.assert_not_in("the publication", &published);
    // A role that may decode all of the WAL, or that subscribes to all tables, reads the mails that were to be sent. No
    // table contains the key.
    for query in [
        "SELECT convert_to(data, 'UTF8') FROM pg_logical_slot_peek_changes('all_of_it', NULL, NULL)",
        "SELECT data FROM pg_logical_slot_peek_binary_changes('cdc', NULL, NULL, \
             'proto_version', '1', 'publication_names', 'everything')",
    ] {
        let all = decoded(query);
        let shown = secrets.shown(&all);
        assert!(
            secrets
                .tokens
                .iter()
                .all(|token| shown.contains(token.as_str()))
        );
        assert!(!secrets.keys.iter().any(|key| shown.contains(key.as_str())));
    }
}

#[test]
fn a_base_backup_holds_links_in_the_outbox_and_the_wal_only() {
    let (cluster, mut client) = prepare();
    let (mut secrets, sessions) = traffic(&cluster, &mut client);
    drop(sessions);
    secrets.codes.clear();
    // Mails that have ended lose their links at once; old versions of the rows go with a vacuum, and with the WAL.
    let ended: Vec<i64> = client
        .query(
            "SELECT id FROM outbox WHERE state NOT IN ('scheduled', 'claimed')",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(!ended.is_empty());
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state NOT IN ('scheduled', 'claimed') AND secrets IS NOT NULL"
        ),
        0
    );
    let outbox: String = client
        .query_one("SELECT pg_relation_filepath('outbox')", &[])
        .unwrap()
        .get(0);
    let toast: String = client
        .query_one("SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'outbox'::regclass", &[])
        .unwrap()
        .get(0);
    let backup = cluster.scratch().join("backup");
    let output = cluster
        .program("pg_basebackup")
        .args(["--checkpoint=fast", "--no-sync", "-X", "stream", "-D"])
        .arg(&backup)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let search = secrets.search();
    let mut holding = BTreeSet::new();
    let mut files = 0;
    for path in files_below(&backup) {
        let content = fs::read(&path).unwrap();
        files += 1;
        let shown = search.shown(&content);
        let name = path
            .strip_prefix(&backup)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        // The key is outside the data directory, where mailroom.key_file says.
        assert!(
            !secrets.keys.iter().any(|key| shown.contains(key.as_str())),
            "{name} holds a key"
        );
        if !shown.is_empty() {
            holding.insert(name);
        }
    }
    assert!(files > 900, "only {files} files");
    for name in &holding {
        assert!(
            name == &outbox || name == &toast || name.starts_with("pg_wal/"),
            "{name} holds a link; the outbox is {outbox}"
        );
    }
    assert!(holding.contains(&outbox), "{holding:?}");
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files
}
