//! The key file: who may read it, and the errors for a broken one.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{
    KEY_A, KEY_B, TALKATIVE, assert_tells_nothing, broken, key_file, mailed, register, shell, sign,
    told, verifies, write_key_file,
};
use crate::cluster::{Cluster, Stop, another_worker};

#[test]
fn the_key_is_private_and_seen_nowhere_but_in_its_file() {
    let cluster = Cluster::start(TALKATIVE);
    let mut client = cluster.create_database("app");
    let path = cluster.data().join("mailroom.key");
    let meta = fs::metadata(&path).unwrap();
    let owner = fs::metadata(cluster.data()).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!((meta.uid(), meta.gid()), (owner.uid(), owner.gid()));
    assert_eq!(meta.nlink(), 1, "no other name of it stays behind");
    let key = key_file(&cluster);
    let digits = key.trim_end();
    assert_eq!(digits.len(), 64);
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let names: Vec<String> = fs::read_dir(cluster.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("mailroom"))
        .collect();
    assert_eq!(names, ["mailroom.key"]);

    // Clients and the worker use the key in all ways.
    let token = sign(&mut client);
    assert!(verifies(&mut client, &token));
    register(&mut client, "worker");
    let worker_token = mailed(&mut client, "worker");
    let worker = cluster.worker("app");
    crate::cluster::signal("TERM", worker);
    another_worker(&mut client, worker);
    register(&mut client, "next");
    mailed(&mut client, "next");
    let code: String = client
        .query_one(
            "SELECT t.code FROM tokens t JOIN accounts a ON a.id = t.account WHERE a.login = 'next'",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(code.len(), 5);

    let log = cluster.log();
    assert!(
        log.contains("mailroom_sign"),
        "the log is as talkative as it gets"
    );
    assert!(log.contains("DEBUG"), "down to its lowest level");
    assert!(
        log.contains("generated a signing key"),
        "an operator is told"
    );
    // The worker's token was not sent to any client, so no statement can contain it.
    let encoded = base64(&bytes(digits));
    assert_tells_nothing(&log, &[digits, &encoded, &worker_token]);

    // Settings and dumps do not show the key either.
    let settings: String = client
        .query_one("SELECT string_agg(s::text, ' ') FROM pg_settings s", &[])
        .unwrap()
        .get(0);
    assert!(settings.contains("mailroom.key_file"));
    assert_tells_nothing(&settings, &[digits, &encoded]);
    let dump = cluster.program("pg_dumpall").output().unwrap();
    assert!(dump.status.success());
    let dump = String::from_utf8(dump.stdout).unwrap();
    assert!(dump.contains("CREATE EXTENSION"));
    assert_tells_nothing(&dump, &[digits, &encoded]);
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextet = |chunk: &[u8], place: usize| {
        let word = chunk
            .iter()
            .fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        char::from(ALPHABET[word >> (18 - 6 * place) & 63])
    };
    // The last two of the 32 bytes are left out: they would add three letters and the padding.
    bytes
        .chunks_exact(3)
        .flat_map(|chunk| (0..4).map(move |place| sextet(chunk, place)))
        .collect()
}

#[test]
fn a_broken_file_is_told_without_its_content() {
    let cluster = Cluster::start(TALKATIVE);
    // No account registers, so the worker does not read the file: another test is about its messages.
    let mut client = cluster.create_database("app");
    let first = key_file(&cluster);

    // The fault, the script that causes it, the SQLSTATE, and what the message must contain.
    let long = KEY_A.repeat(2_000);
    let cases: Vec<(&str, String, &str, &str)> = vec![
        (
            "missing",
            "rm -f mailroom.key".to_owned(),
            "58P01",
            "does not exist",
        ),
        (
            "group-readable",
            broken(KEY_A, "0640"),
            "F0000",
            "mode 0640",
        ),
        (
            "readable by all",
            broken(KEY_A, "0604"),
            "F0000",
            "mode 0604",
        ),
        (
            "unreadable",
            broken(KEY_A, "0000"),
            "42501",
            "cannot be opened",
        ),
        ("empty", broken("", "0600"), "F0000", "holds no key"),
        (
            "a comment",
            broken(&format!("# {KEY_A}"), "0600"),
            "F0000",
            "holds no key",
        ),
        ("too short", broken(&KEY_A[1..], "0600"), "F0000", "line 1"),
        (
            "too long",
            broken(&format!("{KEY_A}0"), "0600"),
            "F0000",
            "line 1",
        ),
        (
            "second line",
            broken(&format!("{KEY_A}\n{}", &KEY_B[2..]), "0600"),
            "F0000",
            "line 2",
        ),
        (
            "two in a line",
            broken(&format!("{KEY_A} {KEY_B}"), "0600"),
            "F0000",
            "line 1",
        ),
        (
            "base64",
            broken(&base64(&bytes(KEY_A)), "0600"),
            "F0000",
            "line 1",
        ),
        ("too large", broken(&long, "0600"), "F0000", "too large"),
        (
            "directory",
            "rm -f mailroom.key; mkdir -m 0700 mailroom.key".to_owned(),
            "F0000",
            "not a regular file",
        ),
    ];
    for (what, script, state, words) in &cases {
        shell(&cluster, "rm -rf mailroom.key");
        shell(&cluster, script);
        for statement in [
            "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))",
            "SELECT mailroom_verify('', 'activation')",
        ] {
            let error = client.simple_query(statement).unwrap_err();
            let text = told(&error);
            assert!(text.starts_with(state), "{what}: {text}");
            assert!(text.contains(words), "{what}: {text}");
            assert!(
                !error
                    .as_db_error()
                    .unwrap()
                    .hint()
                    .unwrap_or_default()
                    .is_empty()
            );
            assert_tells_nothing(&text, &[KEY_A, KEY_B, &base64(&bytes(KEY_A))]);
        }
    }
    // Another file, which the server may read and which contains no key.
    let mut other = cluster.connect("app");
    other
        .batch_execute("SET mailroom.key_file = 'postgresql.auto.conf'")
        .unwrap();
    let error = other
        .simple_query("SELECT mailroom_verify('', 'activation')")
        .unwrap_err();
    let text = told(&error);
    assert!(text.contains("malformed in line"), "{text}");
    assert!(!text.contains("unix_socket_directories"), "{text}");

    // CREATE EXTENSION fails as well if the name exists but leads to no file.
    shell(
        &cluster,
        "rm -rf mailroom.key; ln -s not-mounted/mailroom.key mailroom.key",
    );
    other
        .batch_execute("RESET mailroom.key_file; DROP EXTENSION mailroom")
        .unwrap();
    let error = other
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap_err();
    assert!(told(&error).starts_with("58P01"), "{error:?}");
    shell(&cluster, "rm mailroom.key");
    other.batch_execute("CREATE EXTENSION mailroom").unwrap();

    // After a repair, the session that got the errors can use the file.
    shell(&cluster, "rm -rf mailroom.key");
    write_key_file(&cluster, KEY_A);
    let token = sign(&mut client);
    assert!(verifies(&mut client, &token));
    assert_tells_nothing(
        &cluster.log(),
        &[KEY_A, KEY_B, first.trim_end(), &base64(&bytes(KEY_A))],
    );
}

#[test]
fn a_key_outlives_restarts_and_is_one_for_all_databases() {
    let cluster = Cluster::start(&[]);
    let mut first = cluster.create_database("first");
    let key = key_file(&cluster);
    let token = sign(&mut first);
    let mut second = cluster.create_database("second");
    assert!(verifies(&mut second, &token));
    assert_eq!(sign(&mut second), token);
    for how in [Stop::Fast, Stop::Immediate] {
        cluster.stop_server(how);
        cluster.start_server();
        assert_eq!(key_file(&cluster), key, "after {how:?}");
        assert!(verifies(&mut cluster.connect("first"), &token));
    }
    // After a reinstallation, links that were sent before are still valid.
    let mut first = cluster.connect("first");
    first
        .batch_execute("DROP EXTENSION mailroom; CREATE EXTENSION mailroom")
        .unwrap();
    assert_eq!(key_file(&cluster), key);
    assert!(verifies(&mut first, &token));
}
