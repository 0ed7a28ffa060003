//! The settings `mailroom.*`: a private static for each, and typed getters. `definitions` has units, bounds and their
//! reasons; `checks` has rules for values.
//!
//! A setting never holds a secret: until the library is loaded a setting is a placeholder that every role can read.
//! Secrets are in files, and settings name the files.
//!
//! Only a superuser sets them (`ALTER SYSTEM`, `ALTER DATABASE … SET`): they decide where links point, how long links
//! live and which processes are woken, which a session of the application must not decide.

#![forbid(unsafe_code)]

mod checks;
mod definitions;

pub use definitions::{define, define_preloaded};

use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::time::Duration;

use pgrx::guc::GucSetting;
use pgrx::prelude::*;

use crate::pg::process;
use mailroom_core::batching::Rule;

/// Default of `mailroom.channel`: the channel on which listeners of the original system listen.
const DEFAULT_CHANNEL: &CStr = c"token_insert";
/// Default of `mailroom.locale`: the locale of the built-in templates.
const DEFAULT_LOCALE: &CStr = c"en";
/// Default name of the key file, in the data directory.
const DEFAULT_KEY_FILE: &CStr = c"mailroom.key";

static BATCH_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(100);
static BATCH_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static POLL_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(30_000);
static CHANNEL: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(DEFAULT_CHANNEL));
static NOTIFY: GucSetting<Notify> = GucSetting::<Notify>::new(Notify::Auto);
static COLLECT: GucSetting<bool> = GucSetting::<bool>::new(true);
static ACTIVATION_TTL: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static RECOVERY_TTL: GucSetting<i32> = GucSetting::<i32>::new(15 * 60);
static REQUEST_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(60);
static REQUESTS_PER_HOUR: GucSetting<i32> = GucSetting::<i32>::new(5);
static MAX_DATABASES: GucSetting<i32> = GucSetting::<i32>::new(16);
static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(25);
/// In kB, the unit of the setting.
static MAX_MESSAGE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(10 * 1024);
static LEASE: GucSetting<i32> = GucSetting::<i32>::new(60);
static STOP_GRACE: GucSetting<i32> = GucSetting::<i32>::new(5_000);
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 3600);
static KEY_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static TRANSPORTS_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static LINK_BASE_URL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static LOCALE: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(DEFAULT_LOCALE));
/// The transport of mail if neither the row nor a route names one.
static TRANSPORT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
/// The address that gets all mail, for development.
static REDIRECT_TO: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Which process notifies listeners of new tokens and due mail: the values of `mailroom.notify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Notify {
    /// The worker, once per wake-up; without a worker, the transaction that wrote them.
    #[name = c"auto"]
    Auto,
    /// Always the transaction that wrote them.
    #[name = c"commit"]
    Commit,
    /// None.
    #[name = c"off"]
    Off,
}

/// The batching rule in force.
pub fn batch_rule() -> Rule {
    Rule {
        limit: BATCH_LIMIT.get().unsigned_abs(),
        timeout: millis(BATCH_TIMEOUT.get()),
    }
}

/// `mailroom.lease`.
pub fn lease() -> Duration {
    Duration::from_secs(u64::from(LEASE.get().unsigned_abs()))
}

/// `mailroom.stop_grace`.
pub fn stop_grace() -> Duration {
    millis(STOP_GRACE.get())
}

/// `mailroom.poll_interval`.
pub fn poll_interval() -> Duration {
    millis(POLL_INTERVAL.get())
}

/// `mailroom.max_databases`.
pub fn max_databases() -> usize {
    MAX_DATABASES.get().unsigned_abs() as usize
}

/// `mailroom.notify`.
pub fn notify() -> Notify {
    NOTIFY.get()
}

/// `mailroom.collect`.
pub fn collect() -> bool {
    COLLECT.get()
}

/// `mailroom.channel`, never empty.
pub fn channel() -> CString {
    CHANNEL.get().unwrap_or_else(|| DEFAULT_CHANNEL.to_owned())
}

/// `mailroom.max_attempts`.
pub fn max_attempts() -> i32 {
    MAX_ATTEMPTS.get()
}

/// The path of the key file; a relative path starts at the data directory.
pub fn key_file() -> PathBuf {
    let configured = KEY_FILE.get().unwrap_or_default();
    match configured.to_bytes() {
        b"" => in_data_directory(DEFAULT_KEY_FILE),
        _ => in_data_directory(&configured),
    }
}

/// The path of `mailroom.transports_file`; `None` when it is not set.
pub fn transports_file() -> Option<PathBuf> {
    TRANSPORTS_FILE
        .get()
        .filter(|name| !name.is_empty())
        .map(|name| in_data_directory(&name))
}

/// Resolves a path that was set; a relative path starts at the data directory.
fn in_data_directory(name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    // Joining an absolute name replaces the directory.
    PathBuf::from(std::ffi::OsStr::from_bytes(
        process::data_directory().to_bytes(),
    ))
    .join(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

/// `mailroom.transport`.
pub fn transport() -> String {
    let name = TRANSPORT.get().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// `mailroom.redirect_to`; `None` when it is empty.
pub fn redirect_to() -> Option<String> {
    let address = REDIRECT_TO.get().filter(|address| !address.is_empty())?;
    Some(address.to_string_lossy().into_owned())
}

/// `mailroom.locale` as it was set.
pub fn locale() -> String {
    LOCALE
        .get()
        .unwrap_or_else(|| DEFAULT_LOCALE.to_owned())
        .to_string_lossy()
        .into_owned()
}

#[pg_extern(sql = false)]
fn _default_transport() -> String {
    transport()
}

#[pg_extern(sql = false)]
fn _batch_limit() -> i32 {
    BATCH_LIMIT.get()
}

#[pg_extern(sql = false)]
fn _activation_ttl() -> i64 {
    i64::from(ACTIVATION_TTL.get())
}

#[pg_extern(sql = false)]
fn _recovery_ttl() -> i64 {
    i64::from(RECOVERY_TTL.get())
}

#[pg_extern(sql = false)]
fn _request_interval() -> i64 {
    i64::from(REQUEST_INTERVAL.get())
}

#[pg_extern(sql = false)]
fn _requests_per_hour() -> i32 {
    REQUESTS_PER_HOUR.get()
}

#[pg_extern(sql = false)]
fn _max_attempts() -> i32 {
    max_attempts()
}

/// The largest message that an application may schedule, in octets.
pub fn max_message_size() -> u64 {
    u64::try_from(MAX_MESSAGE_SIZE.get()).unwrap_or(0) * 1024
}

#[pg_extern(sql = false)]
fn _max_message_size() -> i64 {
    i64::try_from(max_message_size()).unwrap_or(i64::MAX)
}

#[pg_extern(sql = false)]
fn _lease() -> i32 {
    LEASE.get()
}

/// `mailroom.retention`.
pub fn retention() -> Duration {
    Duration::from_secs(u64::try_from(RETENTION.get()).unwrap_or(0))
}

#[pg_extern(sql = false)]
fn _retention() -> i32 {
    RETENTION.get()
}

/// `mailroom.link_base_url` without a trailing slash; `None` when it is not set.
pub fn link_base_url() -> Option<String> {
    let url = LINK_BASE_URL.get()?;
    let url = url.to_str().ok()?.trim_end_matches('/');
    (!url.is_empty()).then(|| url.to_owned())
}

fn millis(setting: i32) -> Duration {
    Duration::from_millis(u64::from(setting.unsigned_abs()))
}
