//! `make install` into a copy of the server that lacks mailroom, which must have it afterwards.

// needs: postgres.h

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, bin_directory, eventually, number};

/// A path in an environment variable that the test driver sets.
fn told(variable: &str) -> PathBuf {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `make test`"))
        .into()
}

fn remove_ours(directory: &Path) -> usize {
    let mut removed = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "mailroom.so"
            || name.starts_with("mailroom.control")
            || name.starts_with("mailroom--")
        {
            std::fs::remove_file(&path).unwrap();
            removed += 1;
        }
    }
    removed
}

#[test]
fn a_server_without_mailroom_has_it_after_make_install() {
    let bare = Cluster::start(&["shared_preload_libraries = ''"]);
    let root = bare.scratch().join("root");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(told("MAILROOM_STAGE"))
        .arg(&root)
        .status()
        .unwrap();
    assert!(copied.success());
    // The path of a directory of the staged server in the copy.
    let within = |option: &str| {
        let path = crate::cluster::ask_pg_config("MAILROOM_PG_CONFIG", option);
        root.join(path.strip_prefix(told("MAILROOM_STAGE")).unwrap())
    };
    assert_eq!(remove_ours(&within("--pkglibdir")), 1);
    assert!(remove_ours(&within("--sharedir").join("extension")) >= 2);

    let mut install = Command::new("make");
    // The variables that cargo sets for tests would make it build some crates again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&&*name) {
            install.env_remove(&*name);
        }
    }
    let installed = install
        .arg("install")
        .arg(format!("PG_CONFIG={}", told("MAILROOM_SERVER").display()))
        .arg(format!("DESTDIR={}", root.display()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Most of this profile was built for other tests.
        .env("MAILROOM_PROFILE", "dev")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&installed.stdout);
    assert!(
        installed.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&installed.stderr)
    );
    for step in [
        "shared_preload_libraries = 'mailroom'",
        "CREATE EXTENSION mailroom SCHEMA mailroom;",
    ] {
        assert!(told.contains(step), "{told}");
    }

    let bin = within("--bindir");
    assert_ne!(bin, bin_directory("MAILROOM_PG_CONFIG"));
    let program = Command::new(bin.join("mailroom")).arg("--version").output();
    assert!(program.unwrap().status.success());
    let cluster = Cluster::start_in(&bin, &["mailroom.batch_timeout = 0"]);
    let mut client = cluster.create_database("app");
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('user@example.com', 'user123')")
        .unwrap();
    eventually("the mail of the worker that was installed", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
}
