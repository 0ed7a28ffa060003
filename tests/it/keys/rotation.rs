//! Rotation of the key, by the file and by SQL.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{
    KEY_A, TALKATIVE, assert_tells_nothing, broken, key_file, mailed, register, shell, sign, told,
    verifies, write_key_file,
};
use crate::cluster::Cluster;

#[test]
fn a_rotation_keeps_old_links_until_the_old_line_goes() {
    let cluster = Cluster::start(&["mailroom.batch_timeout = 0"]);
    let mut client = cluster.create_database("app");
    let old_key = key_file(&cluster);
    register(&mut client, "before");
    let old_mail = mailed(&mut client, "before");
    let old_token = sign(&mut client);

    // The new key first, the old one below it: sessions and the worker use both without a reload.
    write_key_file(&cluster, &format!("{KEY_A}\n{old_key}"));
    let new_token = sign(&mut client);
    assert_ne!(new_token, old_token);
    register(&mut client, "after");
    let new_mail = mailed(&mut client, "after");
    for token in [&old_mail, &old_token, &new_mail, &new_token] {
        assert!(verifies(&mut client, token));
    }

    // Without the old key, what it signed is void. What the new one signed, including the worker's mail, is not.
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
    // The new key is in effect at once, in the same transaction, and stays after a rollback.
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
    // The worker signs with the new key: its mail is valid without the old one.
    let first = file.lines().next().unwrap().to_owned();
    write_key_file(&cluster, &first);
    assert!(verifies(&mut client, &new_mail));
    assert!(!verifies(&mut client, &old_mail));

    // Only superusers may rotate the key.
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

    // Once the file can be replaced, it is, and the symbolic link stays.
    shell(&cluster, "chmod 0700 locked");
    client.execute("SELECT mailroom_rotate_key()", &[]).unwrap();
    assert!(cluster.data().join("mailroom.key").is_symlink());
    assert_eq!(key_file(&cluster).lines().count(), 2);
    assert_ne!(sign(&mut client), token);
    assert!(verifies(&mut client, &token));
}

/// Sessions sign and verify while others rotate the key: no link becomes void, and no key is lost.
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
        // Installations read and create the same file.
        let installing = scope.spawn(|| {
            for round in 0..4 {
                let mut other = cluster.create_database(&format!("other{round}"));
                let token = sign(&mut other);
                assert!(verifies(&mut other, &token));
            }
        });
        let ended: Vec<_> = rotating
            .into_iter()
            .chain([installing])
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, std::sync::atomic::Ordering::Release);
        ended.into_iter().for_each(|ended| ended.unwrap());
        for load in load {
            for token in load.join().unwrap() {
                assert!(verifies(&mut client, &token));
            }
        }
    });
    assert_eq!(key_file(&cluster).lines().count(), 1 + 2 * ROTATIONS);
}
