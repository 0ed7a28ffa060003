//! The directories of clusters, and the templates of their data directories.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::programs::{give_away, server_identity};
use super::{Cluster, Stop};

/// When its input ends, it stops the servers of this program and removes its files: those whose names begin with `$0`.
const GUARD: &str = r#"
cat >/dev/null
for file in "$0"*/data/postmaster.pid; do
    read -r server <"$file" || continue
    kill -QUIT "$server"
    while kill -0 "$server"; do sleep 0.1; done
done 2>/dev/null
rm -rf "$0"*
"#;

/// Starts the guard, which cleans up however this program ends, even by SIGKILL: it removes what was not dropped, and
/// what is never dropped, such as the templates.
fn guard() {
    static GUARDED: OnceLock<Child> = OnceLock::new();
    GUARDED.get_or_init(|| {
        let name = format!("mailroom-{}-", std::process::id());
        Command::new("sh")
            .args(["-c", GUARD])
            .arg(std::env::temp_dir().join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    });
}

/// A new directory. Its name is short because the path of a socket is limited to 107 bytes.
pub(super) fn fresh_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    guard();
    let name = format!(
        "mailroom-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    give_away(&path);
    path
}

/// An empty data directory, created once for each test program and copied for each cluster.
pub(super) fn template(bin: &Path) -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let root = fresh_directory();
        let mut initdb = Command::new(bin.join("initdb"));
        if let Some((uid, gid)) = server_identity() {
            initdb.uid(uid).gid(gid);
        }
        let output = initdb
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "-D",
            ])
            .arg(root.join("data"))
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        root.join("data")
    })
}

/// As [`template`], for the server under test, with the database that [`Cluster::start_with_app`] promises.
pub(super) fn template_with_app() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let maker = Cluster::new();
        copy_tree(template(&maker.bin), &maker.data());
        // Without the configuration of a cluster there is no worker, and these options stay in no file.
        maker.start_server_with(&format!(
            "-c listen_addresses= -c unix_socket_directories='{}' -c fsync=off",
            maker.root.display()
        ));
        drop(maker.create_database("app"));
        maker.stop_server(Stop::Fast);
        let data = maker.data();
        // The server has stopped, but its directory must stay.
        std::mem::forget(maker);
        data
    })
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}
