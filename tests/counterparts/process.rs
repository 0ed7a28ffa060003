//! A server as a child process that cannot outlive the test program.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Maximum time for a server to start: Java on a loaded machine is slow.
const START: Duration = Duration::from_secs(120);

/// The server runs below a shell that kills its process group, the server's children included, when its input ends:
/// however the test program ends, even by SIGKILL, and also for servers in statics, which are never dropped.
const GUARD: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ cat <&3 >/dev/null; kill -9 0; } &
exec 3<&-
wait $server
"#;

/// A running server, which is killed when this is dropped.
pub struct Process {
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a server whose output goes to a file.
    pub fn start(server: &Command) -> Self {
        let log = directory().join("log");
        let output = File::create(&log).unwrap();
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD, "sh"])
            .arg(server.get_program())
            .args(server.get_args())
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0);
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => guard.env(name, value),
                None => guard.env_remove(name),
            };
        }
        Self {
            guard: guard.spawn().unwrap(),
            log,
        }
    }

    /// What the server has printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits until `find` returns a value for a complete line of the output.
    pub fn printed<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + START;
        loop {
            let output = self.output();
            // The last line may be half written.
            let complete = output.rfind('\n').map_or("", |end| &output[..end]);
            if let Some(found) = complete.lines().find_map(&find) {
                return found;
            }
            let ended = self.guard.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "gave up waiting for {what}; the server printed:\n{output}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The number at the end of the first line that contains `mark`.
    pub fn port(&mut self, mark: &str) -> u16 {
        self.printed(mark, |line| {
            let (_, rest) = line.split_once(mark)?;
            rest.trim().trim_end_matches('/').parse().ok()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input makes the guard kill the server and itself.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = std::fs::remove_dir_all(self.log.parent().unwrap());
    }
}

/// A new directory. The guard of the cluster module removes it, by its name, when the test program ends.
pub fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("mailroom-{}-counterpart-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

/// A loopback port for a server that cannot report which port the system chose. It is free, no other test of this
/// program gets it, and it is below the ephemeral ports, which the system assigns to connections and to other servers.
#[allow(dead_code, reason = "the benches have no such server")]
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 10_000) as u16;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
