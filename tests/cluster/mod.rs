//! A throw-away PostgreSQL cluster with mailroom in it, for tests, benchmarks and the demonstration.
//!
//! The server is the staged copy that `MAILROOM_PG_CONFIG` names (`tests/run` makes it). It listens on a
//! Unix socket in its own temporary directory only, and both go when the value is dropped. PostgreSQL
//! refuses to run as root; then its programs run as the user `postgres`.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses its own part of this module"
)]

mod directories;
mod patience;
mod programs;
mod questions;
pub mod transports;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};

use directories::{copy_tree, fresh_directory, template, template_with_app};
pub use patience::{Halts, PATIENCE, StopAtEnd, eventually, eventually_or_tell};
pub use programs::{ask_pg_config, bin_directory, cpu_ticks, has_contrib, signal, skip};
use programs::{give_away, server_identity};
pub use questions::{another_worker, find_worker, number};

/// How to end a server, as `pg_ctl stop -m` spells it.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    Fast,
    Immediate,
}

/// A running (or stopped, or crashed) cluster.
pub struct Cluster {
    root: PathBuf,
    bin: PathBuf,
}

impl Cluster {
    /// Starts a cluster with the library preloaded and these lines added to its configuration.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_from("MAILROOM_PG_CONFIG", settings)
    }

    /// As [`Self::start`], with the server that another variable names.
    pub fn start_from(variable: &str, settings: &[&str]) -> Self {
        Self::start_in(&bin_directory(variable), settings)
    }

    /// As [`Self::start`], with the server whose programs are in this directory.
    pub fn start_in(bin: &Path, settings: &[&str]) -> Self {
        let cluster = Self {
            root: fresh_directory(),
            bin: bin.to_owned(),
        };
        cluster.create(settings);
        cluster.start_server();
        cluster
    }

    /// As [`Self::start`], with a file of the server's own, mode 0600, in the data directory.
    pub fn start_with_file(settings: &[&str], name: &str, content: &str) -> Self {
        let cluster = Self::new();
        cluster.create(settings);
        cluster.add_file(name, content);
        cluster.start_server();
        cluster
    }

    /// As [`Self::start`], with a database `app` that has the extension; also returns a connection to it.
    pub fn start_with_app(settings: &[&str]) -> (Self, Client) {
        let cluster = Self::new();
        cluster.create_from(template_with_app(), settings);
        cluster.start_server();
        let client = cluster.connect("app");
        (cluster, client)
    }

    /// As [`Self::start_with_app`], with a file as [`Self::start_with_file`] has it.
    pub fn start_with_app_and_file(settings: &[&str], name: &str, content: &str) -> (Self, Client) {
        let cluster = Self::new();
        cluster.create_from(template_with_app(), settings);
        cluster.add_file(name, content);
        cluster.start_server();
        let client = cluster.connect("app");
        (cluster, client)
    }

    /// A cluster with a directory of its own, without a data directory.
    fn new() -> Self {
        Self {
            root: fresh_directory(),
            bin: bin_directory("MAILROOM_PG_CONFIG"),
        }
    }

    fn add_file(&self, name: &str, content: &str) {
        self.append(name, content);
        let path = self.data().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn create(&self, settings: &[&str]) {
        self.create_from(template(&self.bin), settings);
    }

    fn create_from(&self, template: &Path, settings: &[&str]) {
        copy_tree(template, &self.data());
        let mut conf = format!(
            "unix_socket_directories = '{}'\n\
             listen_addresses = ''\n\
             shared_preload_libraries = 'mailroom'\n\
             max_connections = 60\n\
             shared_buffers = 128MB\n\
             log_line_prefix = '%m [%p] %b '\n\
             jit = off\n\
             fsync = off\n",
            self.root.display()
        );
        for setting in settings {
            conf.push_str(setting);
            conf.push('\n');
        }
        self.append("postgresql.auto.conf", &conf);
    }

    /// Adds lines to a file of the data directory.
    pub fn append(&self, file: &str, lines: &str) {
        let path = self.data().join(file);
        let mut content = std::fs::read_to_string(&path).unwrap_or_default();
        content.push_str(lines);
        std::fs::write(&path, content).unwrap();
        give_away(&path);
    }

    /// Starts the server and waits until it accepts connections.
    pub fn start_server(&self) {
        self.start_server_with("");
    }

    /// As [`Self::start_server`], with options for the server program.
    pub fn start_server_with(&self, options: &str) {
        self.start_server_under(options, &[]);
    }

    /// As [`Self::start_server_with`], with variables in the server's environment.
    pub fn start_server_under(&self, options: &str, environment: &[(&str, &str)]) {
        let output = self
            .program("pg_ctl")
            .envs(environment.iter().copied())
            .args(["-w", "-t", "60", "-s", "start", "-o", options, "-l"])
            .arg(self.root.join("log"))
            .arg("-D")
            .arg(self.data())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "the server did not start:\n{}",
            self.log()
        );
    }

    /// Compiles a C file of this repository to a library that the server can be started under with `LD_PRELOAD`.
    pub fn compile_preload(&self, source: &str) -> PathBuf {
        let name = Path::new(source).with_extension("so");
        let library = self.scratch().join(name.file_name().unwrap());
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{errors}");
        library
    }

    /// Starts a streaming standby of `primary`, from a base backup.
    pub fn follow(primary: &Self) -> Self {
        let standby = Self::copy_of(primary, &["--write-recovery-conf"]);
        standby.start_server();
        standby
    }

    /// Makes a base backup of `original`, with these options, and does not start it.
    pub fn copy_of(original: &Self, options: &[&str]) -> Self {
        let copy = Self {
            root: fresh_directory(),
            bin: original.bin.clone(),
        };
        let output = original
            .program("pg_basebackup")
            .args(options)
            .args(["--checkpoint=fast", "--no-sync", "-D"])
            .arg(copy.data())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let socket = format!("unix_socket_directories = '{}'\n", copy.root.display());
        copy.append("postgresql.auto.conf", &socket);
        copy
    }

    /// Stops the server; returns how long it took.
    pub fn stop_server(&self, how: Stop) -> Duration {
        let begin = Instant::now();
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        self.program("pg_ctl")
            .args(["-w", "-t", "60", "-s", "stop", "-m", mode, "-D"])
            .arg(self.data())
            .output()
            .unwrap();
        begin.elapsed()
    }

    /// Makes the server read its configuration again.
    pub fn reload(&self) {
        let output = self
            .program("pg_ctl")
            .args(["-s", "reload", "-D"])
            .arg(self.data())
            .output()
            .unwrap();
        assert!(output.status.success());
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The socket's directory, for `PGHOST`.
    pub fn socket(&self) -> &Path {
        &self.root
    }

    /// A directory that the server's user and this process can both write to.
    pub fn scratch(&self) -> PathBuf {
        let path = self.root.join("scratch");
        std::fs::create_dir_all(&path).unwrap();
        give_away(&path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// Makes the server's user the owner of a file.
    pub fn give_away(&self, path: &Path) {
        give_away(path);
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.root.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Connects as the superuser.
    pub fn connect(&self, database: &str) -> Client {
        self.connect_as(database, "postgres")
    }

    /// Connects as `user`; panics with the server's log if that fails.
    pub fn connect_as(&self, database: &str, user: &str) -> Client {
        self.try_connect(database, user)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Connects, or returns the error.
    pub fn try_connect(&self, database: &str, user: &str) -> Result<Client, postgres::Error> {
        Config::new()
            .host_path(&self.root)
            .user(user)
            .dbname(database)
            .connect(NoTls)
    }

    /// Makes a database with the extension in it and connects to it.
    pub fn create_database(&self, name: &str) -> Client {
        self.connect("postgres")
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .unwrap();
        let mut client = self.connect(name);
        client.batch_execute("CREATE EXTENSION mailroom").unwrap();
        client
    }

    /// Makes a database with the extension in a schema of its own, as docs/start/install.md says, and connects to it.
    pub fn create_database_with_schema(&self, name: &str) -> Client {
        self.connect("postgres")
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .unwrap();
        self.connect(name)
            .batch_execute(&format!(
                "CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom; \
                 ALTER DATABASE {name} SET search_path = \"$user\", public, mailroom"
            ))
            .unwrap();
        self.connect(name)
    }

    /// One of the server's programs, run as the server's user, with the environment to reach the server.
    pub fn program(&self, name: &str) -> Command {
        self.as_server_user(Command::new(self.bin.join(name)))
    }

    /// Any program, run as the server's user, with the environment to reach the server.
    pub fn as_server_user(&self, mut command: Command) -> Command {
        if let Some((uid, gid)) = server_identity() {
            command.uid(uid).gid(gid);
        }
        command
            .current_dir(&self.root)
            .env("PGHOST", &self.root)
            .env("PGUSER", "postgres")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", &self.root)
            .env_remove("PGPORT")
            .env_remove("PGDATABASE")
            .env_remove("PGOPTIONS")
            .env_remove("PGSERVICE");
        command
    }

    /// Runs psql with a script; checks nothing.
    pub fn psql(&self, database: &str, script: &str) -> Output {
        self.program("psql")
            .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", script])
            .output()
            .unwrap()
    }

    /// Waits until the worker of `database` has examined its queue and waits; returns its process id.
    pub fn worker(&self, database: &str) -> i32 {
        let mut client = self.connect(database);
        eventually("a worker that waits", || {
            client
                .query_opt(
                    "SELECT pid FROM _worker_report() WHERE next_wake_at IS NOT NULL",
                    &[],
                )
                .unwrap()
                .map(|row| row.get(0))
        })
    }

    /// Whether this server has that contrib extension; if not, prints that a part of the test is skipped.
    pub fn has_contrib(&self, extension: &str) -> bool {
        has_contrib(&self.bin, extension)
    }

    /// Fails if pg_amcheck finds a damaged table or index in any database, or an index that lacks a row of its table.
    /// It blocks writers, so a test calls it at the end. The server must not be a standby.
    pub fn verify(&self) {
        if let Some(complaint) = self.damage() {
            panic!("pg_amcheck: {complaint}");
        }
    }

    /// The errors that pg_amcheck reports, if any.
    pub fn damage(&self) -> Option<String> {
        if !self.has_contrib("amcheck") {
            return None;
        }
        let output = self
            .program("pg_amcheck")
            .args(["--all", "--install-missing", "--no-strict-names"])
            .args(["--heapallindexed", "--parent-check", "--rootdescend"])
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        (!output.status.success()).then(|| String::from_utf8_lossy(&told).into_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
        self.stop_server(Stop::Immediate);
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
