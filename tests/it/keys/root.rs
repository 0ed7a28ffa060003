//! Files that belong to root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::{KEY_A, KEY_B, assert_tells_nothing, sign, told, verifies};
use crate::cluster::{Cluster, eventually, skip};

/// Sets a path's owner and group, then its mode, which a change of owner can reduce.
fn give(path: &Path, (uid, gid): (u32, u32), mode: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether this process can create files that belong to root. Otherwise only a unit test checks the rule.
fn is_root(scratch: &Path) -> bool {
    let root = chown(scratch.join("."), Some(0), None).is_ok();
    if !root {
        skip("only root can make a file of root's");
    }
    root
}

/// A directory of root's in the layout of a mounted secret: the name of the file leads to `..data`, which leads to the
/// version.
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

    /// Replaces the version atomically; returns its file.
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

    // The next version is in effect as soon as it is mounted.
    let both = format!("{KEY_B}\n{KEY_A}\n");
    let file = mounted.publish("..2", &both, (0, group), 0o640);
    let by_b = sign(&mut client);
    assert_ne!(by_a, by_b);
    assert!(verifies(&mut client, &by_a) && verifies(&mut client, &by_b));

    // Only root replaces root's file, even where the server could.
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

    // Owner and mode, and the error of a session that has no keys in memory.
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

/// A mounted transports file is checked as a key file is.
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
        // The deliverer has its credentials, and stops for this reason.
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
