//! The server's programs, processes and user.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// As [`Cluster::has_contrib`], for the server whose programs are in this directory; it need not run.
pub fn has_contrib(bin: &Path, extension: &str) -> bool {
    let control = format!("extension/{extension}.control");
    let has = ask_program(&bin.join("pg_config"), "--sharedir")
        .join(control)
        .exists();
    if !has {
        skip(&format!("this server has no {extension}"));
    }
    has
}

/// Prints that something is skipped, in a line of its own that begins with `skipped: ` and the test's path.
///
/// The test harness captures what a passing test prints by macros, so this writes to standard error directly.
pub fn skip(why: &str) {
    use std::io::Write;
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Sends a signal, by its name, to a process of the server.
pub fn signal(name: &str, pid: i32) {
    // `kill` of the shell: a minimal Debian has no such program.
    let command = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(status.success(), "no process {pid} to send {name} to");
}

/// CPU time a process has used, in clock ticks of 10 ms.
pub fn cpu_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// The directory of the programs of the server whose pg_config this environment variable names.
pub fn bin_directory(variable: &str) -> PathBuf {
    ask_pg_config(variable, "--bindir")
}

/// A path that this server's pg_config prints.
pub fn ask_pg_config(variable: &str, option: &str) -> PathBuf {
    let program = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `make test`, which prepares a server for them")
    });
    ask_program(Path::new(&program), option)
}

pub(super) fn ask_program(pg_config: &Path, option: &str) -> PathBuf {
    let output = Command::new(pg_config).arg(option).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The user and the group that run the server if this process runs as root.
pub(super) fn server_identity() -> Option<(u32, u32)> {
    static IDENTITY: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *IDENTITY.get_or_init(|| {
        let id = |arguments: &[&str]| -> Option<u32> {
            let output = Command::new("id").args(arguments).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        if id(&["-u"]) != Some(0) {
            return None;
        }
        Some((
            id(&["-u", "postgres"]).expect("user postgres"),
            id(&["-g", "postgres"]).expect("group postgres"),
        ))
    })
}

pub(super) fn give_away(path: &Path) {
    if let Some((uid, gid)) = server_identity() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}
