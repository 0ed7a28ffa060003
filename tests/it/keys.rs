//! The signing key in a running server: made by CREATE EXTENSION, kept, shared, rotated, broken, mended, and
//! never seen anywhere but in its file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, Stop, another_worker, eventually, number};
use postgres::Client;

const KEY_A: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
const KEY_B: &str = "cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe";

/// All that a server can be told to log.
const TALKATIVE: &[&str] = &[
    "log_statement = 'all'",
    "log_min_messages = debug5",
    "log_min_error_statement = debug5",
    "log_error_verbosity = verbose",
    "log_duration = on",
    "log_parameter_max_length = -1",
    "log_parameter_max_length_on_error = -1",
    "debug_print_plan = on",
    "mailroom.batch_timeout = 0",
];

/// Runs a shell script in the data directory, as the server's user: only what that user made is accepted.
fn shell(cluster: &Cluster, script: &str) {
    let mut command = cluster.as_server_user(Command::new("sh"));
    let output = command
        .current_dir(cluster.data())
        .args(["-euc", script])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Puts a new key file in the place of the old one.
fn write_key_file(cluster: &Cluster, content: &str) {
    shell(
        cluster,
        &format!("umask 077; printf '%s' '{content}' >new.key; mv new.key mailroom.key"),
    );
}

fn key_file(cluster: &Cluster) -> String {
    fs::read_to_string(cluster.data().join("mailroom.key")).unwrap()
}

fn sign(client: &mut Client) -> String {
    client
        .query_one(
            "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))",
            &[],
        )
        .unwrap()
        .get(0)
}

fn verifies(client: &mut Client, token: &str) -> bool {
    client
        .query_one("SELECT mailroom_verify($1, 'activation')", &[&token])
        .unwrap()
        .get(0)
}

fn register(client: &mut Client, login: &str) {
    client
        .execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&login],
        )
        .unwrap();
}

/// The signed token of the mail that the worker made for this account, once it has.
fn mailed(client: &mut Client, login: &str) -> String {
    eventually("the worker's mail", || {
        client
            .query_opt(
                "SELECT secrets->>'token' FROM outbox WHERE data->>'login' = $1",
                &[&login],
            )
            .unwrap()
            .map(|row| row.get(0))
    })
}

/// Fails if a piece of one of these secrets is in the text, in any case: 12 characters of one are too many.
fn assert_tells_nothing(text: &str, secrets: &[&str]) {
    let text = text.to_lowercase();
    for secret in secrets {
        let secret = secret.trim().to_lowercase();
        assert!(secret.len() >= 12, "not much of a secret");
        for start in 0..=secret.len() - 12 {
            let piece = &secret[start..start + 12];
            if let Some(place) = text.find(piece) {
                let line = text[..place].matches('\n').count();
                panic!(
                    "line {line} shows a secret: {}",
                    text.lines().nth(line).unwrap_or_default()
                );
            }
        }
    }
}

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

    // Everything that uses the key, by a client and by the worker.
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
    // The worker's token was never sent to anybody, so nobody can have put it into a statement.
    let encoded = base64(&bytes(digits));
    assert_tells_nothing(&log, &[digits, &encoded, &worker_token]);

    // Nor do settings, statistics or dumps show the key.
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
    // The last two of the 32 bytes are left out: what is missing is padding and four letters.
    bytes
        .chunks_exact(3)
        .flat_map(|chunk| (0..4).map(move |place| sextet(chunk, place)))
        .collect()
}

/// Everything an error tells a client.
fn told(error: &postgres::Error) -> String {
    let db = error.as_db_error().expect("an answer of the server");
    format!(
        "{} {} {} {} {}",
        db.code().code(),
        db.message(),
        db.detail().unwrap_or_default(),
        db.hint().unwrap_or_default(),
        db.where_().unwrap_or_default()
    )
}

#[test]
fn a_broken_file_is_told_without_its_content() {
    let cluster = Cluster::start(TALKATIVE);
    // Nobody registers, so the worker has no use for the file: what it says is another test's.
    let mut client = cluster.create_database("app");
    let first = key_file(&cluster);

    // What makes the file bad, the SQLSTATE, and what the message must say.
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
    // A file of another kind, which the server may read and a key file is not.
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

    // Whoever installs is told, too, where there is a name already that leads to no file.
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

    // Put right, it works in the very session that complained.
    shell(&cluster, "rm -rf mailroom.key");
    write_key_file(&cluster, KEY_A);
    let token = sign(&mut client);
    assert!(verifies(&mut client, &token));
    assert_tells_nothing(
        &cluster.log(),
        &[KEY_A, KEY_B, first.trim_end(), &base64(&bytes(KEY_A))],
    );
}

/// A script that makes a key file with this content and mode.
fn broken(content: &str, mode: &str) -> String {
    format!("umask 077; printf '%s' '{content}' >mailroom.key; chmod {mode} mailroom.key")
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
    // Installed anew, it still knows the links it sent before.
    let mut first = cluster.connect("first");
    first
        .batch_execute("DROP EXTENSION mailroom; CREATE EXTENSION mailroom")
        .unwrap();
    assert_eq!(key_file(&cluster), key);
    assert!(verifies(&mut first, &token));
}

#[test]
fn a_rotation_keeps_old_links_until_the_old_line_goes() {
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let mut client = cluster.create_database("app");
    let old_key = key_file(&cluster);
    register(&mut client, "before");
    let old_mail = mailed(&mut client, "before");
    let old_token = sign(&mut client);

    // The new key first, the old one below it: for sessions and the worker alike, without a reload.
    write_key_file(&cluster, &format!("{KEY_A}\n{old_key}"));
    let new_token = sign(&mut client);
    assert_ne!(new_token, old_token);
    register(&mut client, "after");
    let new_mail = mailed(&mut client, "after");
    for token in [&old_mail, &old_token, &new_mail, &new_token] {
        assert!(verifies(&mut client, token));
    }

    // The old key goes, and what it signed is void. What the new one signed, the worker's mail among it,
    // is not.
    write_key_file(&cluster, KEY_A);
    for (token, expected) in [
        (&old_mail, false),
        (&old_token, false),
        (&new_mail, true),
        (&new_token, true),
    ] {
        assert_eq!(verifies(&mut client, token), expected);
    }
}

#[test]
fn a_rotation_from_sql_needs_no_reload_and_voids_no_link() {
    let cluster = Cluster::start(TALKATIVE);
    let mut client = cluster.create_database("app");
    let mut other = cluster.connect("app");
    let old_key = key_file(&cluster);
    let old = sign(&mut client);
    assert_eq!(sign(&mut other), old);
    register(&mut client, "before");
    let old_mail = mailed(&mut client, "before");

    let mut transaction = client.transaction().unwrap();
    let keys: i32 = transaction
        .query_one("SELECT mailroom_rotate_key()", &[])
        .unwrap()
        .get(0);
    assert_eq!(keys, 2);
    // At once, in the same transaction, and whatever becomes of it.
    let new: String = transaction
        .query_one(
            "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))",
            &[],
        )
        .unwrap()
        .get(0);
    transaction.rollback().unwrap();
    assert_ne!(new, old);
    assert_eq!(sign(&mut client), new);
    assert_eq!(sign(&mut other), new);
    let file = key_file(&cluster);
    assert!(file.ends_with(&old_key) && file.lines().count() == 2);
    let meta = fs::metadata(cluster.data().join("mailroom.key")).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    register(&mut client, "after");
    let new_mail = mailed(&mut client, "after");
    for token in [&old, &new, &old_mail, &new_mail] {
        assert!(verifies(&mut client, token));
    }
    // The worker signs with the new one: without the old one its mail is good.
    let first = file.lines().next().unwrap().to_owned();
    write_key_file(&cluster, &first);
    assert!(verifies(&mut client, &new_mail));
    assert!(!verifies(&mut client, &old_mail));

    // For superusers only, whoever was granted the call.
    client.batch_execute("SET ROLE mailroom_admin").unwrap();
    let error = client
        .simple_query("SELECT mailroom_rotate_key()")
        .unwrap_err();
    assert!(told(&error).starts_with("42501"), "{}", told(&error));
    client.batch_execute("RESET ROLE").unwrap();
    assert_eq!(key_file(&cluster), first);
    assert_tells_nothing(&cluster.log(), &[old_key.trim_end(), &first]);
}

#[test]
fn a_file_that_is_no_good_is_not_rotated() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    for (script, state) in [
        (broken(KEY_A, "0640"), "F0000"),
        (broken(&KEY_A[1..], "0600"), "F0000"),
        ("rm -f mailroom.key".to_owned(), "58P01"),
    ] {
        shell(&cluster, "rm -f mailroom.key");
        shell(&cluster, &script);
        let before = fs::read(cluster.data().join("mailroom.key")).ok();
        let error = client
            .simple_query("SELECT mailroom_rotate_key()")
            .unwrap_err();
        assert!(told(&error).starts_with(state), "{}", told(&error));
        assert_tells_nothing(&told(&error), &[KEY_A]);
        assert_eq!(fs::read(cluster.data().join("mailroom.key")).ok(), before);
    }
    let leftovers = fs::read_dir(cluster.data())
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("mailroom")
        })
        .count();
    assert_eq!(leftovers, 0);
}

/// Sets a path's owner and group, then its mode, which a change of owner can reduce.
fn give(path: &Path, (uid, gid): (u32, u32), mode: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Only root can make files that belong to root; without it the rule has its unit test alone.
fn is_root(scratch: &Path) -> bool {
    let root = chown(scratch.join("."), Some(0), None).is_ok();
    if !root {
        eprintln!("skipped: only root can make a file of root's");
    }
    root
}

/// A directory of root's as a secret is mounted: the name of the file leads to `..data`, which leads to the version.
struct Mounted(PathBuf);

impl Mounted {
    fn new(cluster: &Cluster) -> Self {
        let path = cluster.scratch().join("mounted");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("..data/signing.key", path.join("signing.key")).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("signing.key")
    }

    /// Puts another version in the place of the one that is there, in one step; returns its file.
    fn publish(&self, version: &str, content: &str, owner: (u32, u32), mode: u32) -> PathBuf {
        let directory = self.0.join(version);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let file = directory.join("signing.key");
        fs::write(&file, content).unwrap();
        give(&file, owner, mode);
        symlink(version, self.0.join("..next")).unwrap();
        fs::rename(self.0.join("..next"), self.0.join("..data")).unwrap();
        file
    }
}

#[test]
fn a_file_of_roots_is_taken_as_postgresql_takes_a_private_key_and_is_not_rotated() {
    let cluster = Cluster::start(&[]);
    if !is_root(&cluster.scratch()) {
        return;
    }
    let server = fs::metadata(cluster.data()).unwrap();
    let (user, group) = (server.uid(), server.gid());
    let mounted = Mounted::new(&cluster);
    let path = mounted.file();
    let key_file = format!("ALTER SYSTEM SET mailroom.key_file = '{}'", path.display());
    cluster
        .connect("postgres")
        .batch_execute(&key_file)
        .unwrap();
    mounted.publish("..1", KEY_A, (0, group), 0o440);
    cluster.reload();
    let mut client = cluster.create_database("app");
    let by_a = sign(&mut client);

    // The next version is in force as soon as it is mounted.
    let both = format!("{KEY_B}\n{KEY_A}\n");
    let file = mounted.publish("..2", &both, (0, group), 0o640);
    let by_b = sign(&mut client);
    assert_ne!(by_a, by_b);
    assert!(verifies(&mut client, &by_a) && verifies(&mut client, &by_b));

    // Root's is replaced by root alone, also where the server could.
    for mode in [0o755, 0o777] {
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(mode)).unwrap();
        let error = client
            .simple_query("SELECT mailroom_rotate_key()")
            .unwrap_err();
        let told = told(&error);
        assert!(told.starts_with("42501"), "{told}");
        assert!(told.contains("belongs to root"), "{told}");
        assert!(told.contains("where the file comes from"), "{told}");
        assert_eq!(fs::read_to_string(&file).unwrap(), both);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(sign(&mut client), by_b);
    }

    // Whose it is, its mode, and what is said of it by a session that has no keys in memory.
    let other = user + 1;
    let cases = [
        ((0, group), 0o400, Some("cannot be opened")),
        ((0, group), 0o444, Some("mode 0444")),
        ((0, group), 0o644, Some("mode 0644")),
        ((0, group), 0o660, Some("mode 0660")),
        ((0, group), 0o650, Some("mode 0650")),
        ((user, group), 0o400, None),
        ((user, group), 0o440, Some("mode 0440")),
        (
            (other, group),
            0o440,
            Some("neither to the server's user nor to root"),
        ),
    ];
    for (case, (owner, mode, words)) in cases.into_iter().enumerate() {
        mounted.publish(&format!("..case{case}"), &both, owner, mode);
        let answer = cluster
            .connect("app")
            .simple_query("SELECT mailroom_verify('', 'activation')");
        match (answer, words) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => {
                let told = told(&error);
                assert!(told.contains(words), "{told}");
                assert_tells_nothing(&told, &[KEY_A, KEY_B]);
            }
            (Ok(_), Some(words)) => panic!("{owner:?} {mode:o} was taken: not \"{words}\""),
            (Err(error), None) => panic!("{owner:?} {mode:o}: {}", told(&error)),
        }
    }
}

/// A mounted transports file is judged as a key file is.
#[test]
fn credentials_of_roots_are_taken_as_postgresql_takes_a_private_key() {
    let cluster = Cluster::start(&[
        "mailroom.transport = main",
        "mailroom.transports_file = 'transports.toml'",
    ]);
    if !is_root(&cluster.scratch()) {
        return;
    }
    let group = fs::metadata(cluster.data()).unwrap().gid();
    let file = cluster.data().join("transports.toml");
    let transport = "[transports.main]\nprovider = \"webhook\"\nendpoint = \"https://127.0.0.1:1/\"\n\
         secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
    fs::write(&file, transport).unwrap();
    let mut client = cluster.create_database("app");
    client
        .execute("SELECT mailroom_send('a@example.com', 'S', 'B')", &[])
        .unwrap();
    for (mode, column, reason) in [
        (0o644, "transports_error", "mode 0644"),
        // What a sender is stopped by that has its credentials.
        (0o440, "transport_reason", "is not public"),
    ] {
        give(&file, (0, group), mode);
        cluster.reload();
        eventually(reason, || {
            let told: Option<String> = client
                .query_one(&format!("SELECT {column} FROM mailroom_status()"), &[])
                .unwrap()
                .get(0);
            told.filter(|told| told.contains(reason))
        });
    }
}

#[test]
fn a_file_that_cannot_be_replaced_stays_and_the_error_says_what_to_do() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let key = key_file(&cluster);
    shell(
        &cluster,
        "mkdir locked; mv mailroom.key locked/; ln -s locked/mailroom.key mailroom.key; chmod 0500 locked",
    );
    let token = sign(&mut client);
    let error = client
        .simple_query("SELECT mailroom_rotate_key()")
        .unwrap_err();
    let told = told(&error);
    assert!(told.starts_with("42501"), "{told}");
    assert!(told.contains("cannot be replaced"), "{told}");
    assert!(told.contains("where the file comes from"), "{told}");
    assert_eq!(key_file(&cluster), key);
    assert_eq!(sign(&mut client), token);
    let locked = cluster.data().join("locked");
    assert_eq!(fs::read_dir(&locked).unwrap().count(), 1);

    // Once it can be, it is, and the link stays.
    shell(&cluster, "chmod 0700 locked");
    client.execute("SELECT mailroom_rotate_key()", &[]).unwrap();
    assert!(cluster.data().join("mailroom.key").is_symlink());
    assert_eq!(key_file(&cluster).lines().count(), 2);
    assert_ne!(sign(&mut client), token);
    assert!(verifies(&mut client, &token));
}

/// Sessions sign and verify while others rotate, at the same time: no link is ever void, no key is lost.
#[test]
fn rotations_under_load_void_no_link() {
    const ROTATIONS: usize = 20;
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let mut client = cluster.create_database("app");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = cluster.connect("app");
                    let mut tokens = Vec::new();
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        tokens.push(sign(&mut client));
                        let oldest = &tokens[0];
                        assert!(verifies(&mut client, oldest));
                        let newest = &tokens[tokens.len() - 1];
                        assert!(verifies(&mut client, newest));
                    }
                    tokens
                })
            })
            .collect();
        let rotating: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = cluster.connect("app");
                    for _ in 0..ROTATIONS {
                        client.execute("SELECT mailroom_rotate_key()", &[]).unwrap();
                    }
                })
            })
            .collect();
        for rotating in rotating {
            rotating.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        for load in load {
            for token in load.join().unwrap() {
                assert!(verifies(&mut client, &token));
            }
        }
    });
    assert_eq!(key_file(&cluster).lines().count(), 1 + 2 * ROTATIONS);
}

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
        // Said once, to the log only.
        assert_eq!(kept(&cluster), round + 1);
        // Whoever has none in memory has none.
        let error = cluster
            .connect("app")
            .simple_query("SELECT mailroom_verify('', 'activation')")
            .unwrap_err();
        assert_tells_nothing(&told(&error), &[KEY_A, key.trim_end()]);
    }
    // Put right, it is noticed.
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
        // One that has no keys in memory: what has goes on with them.
        let worker = cluster.worker("app");
        crate::cluster::signal("TERM", worker);
        another_worker(&mut client, worker);
        cluster.worker("app");
        let failures = "SELECT count(*) FROM job_runs WHERE error IS NOT NULL";
        let before = number(&mut client, failures);
        for login in ["a", "b", "c"] {
            register(&mut client, &format!("{login}{round}"));
        }
        // More tries than warnings.
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
        // By then it has said so, too; the next round counts from here.
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
