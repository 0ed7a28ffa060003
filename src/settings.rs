//! The settings `mailroom.*`: one private static each, its unit, bounds and reason, and a typed getter.
//!
//! A setting never holds a secret: before the library is loaded a setting is a placeholder that anybody
//! can read. Secrets are in files, and settings name the files.
//!
//! All are for the superuser to change (`ALTER SYSTEM`, `ALTER DATABASE … SET`): they say where links
//! point, how long they live and who is woken, and a session of the application has no say in that.

mod routing;

pub use routing::{redirect_to, transport};

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::time::Duration;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;

use mailroom_core::batching::Rule;

/// The channel's boot value, the name that listeners of the original system know.
const DEFAULT_CHANNEL: &CStr = c"token_insert";
/// Where senders outside the server hear that there is mail for them.
const DEFAULT_OUTBOX_CHANNEL: &CStr = c"outbox_due";
/// The locale's boot value, that of the templates in the library.
const DEFAULT_LOCALE: &CStr = c"en";
/// The key file's name beside the data directory's own files.
const DEFAULT_KEY_FILE: &CStr = c"mailroom.key";

static BATCH_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(100);
static BATCH_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static POLL_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(30_000);
static CHANNEL: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(DEFAULT_CHANNEL));
static OUTBOX_CHANNEL: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(DEFAULT_OUTBOX_CHANNEL));
static NOTIFY: GucSetting<Notify> = GucSetting::<Notify>::new(Notify::Auto);
static COLLECT: GucSetting<bool> = GucSetting::<bool>::new(true);
static ACTIVATION_TTL: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static RECOVERY_TTL: GucSetting<i32> = GucSetting::<i32>::new(15 * 60);
static REQUEST_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(60);
static REQUESTS_PER_HOUR: GucSetting<i32> = GucSetting::<i32>::new(5);
static MAX_DATABASES: GucSetting<i32> = GucSetting::<i32>::new(16);
static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(25);
/// In kilobytes, as the setting's unit is.
static MAX_MESSAGE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(10 * 1024);
static LEASE: GucSetting<i32> = GucSetting::<i32>::new(60);
static STOP_GRACE: GucSetting<i32> = GucSetting::<i32>::new(5_000);
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 3600);
static KEY_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static TRANSPORTS_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static LINK_BASE_URL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static LOCALE: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(DEFAULT_LOCALE));

/// Who tells outside listeners of new tokens: the values of `mailroom.notify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Notify {
    /// The worker, once per wake-up; without a worker, the transaction that made them.
    #[name = c"auto"]
    Auto,
    /// The transaction that made them, always.
    #[name = c"commit"]
    Commit,
    /// Nobody.
    #[name = c"off"]
    Off,
}

/// Defines what can be defined only while libraries are being preloaded. To be called before [`define`].
pub fn define_preloaded() {
    GucRegistry::define_int_guc(
        c"mailroom.max_databases",
        c"Databases that can have a worker at the same time.",
        c"Each worker takes one of max_worker_processes, and the launcher one more.",
        &MAX_DATABASES,
        1,
        crate::registry::SLOTS as i32,
        GucContext::Postmaster,
        GucFlags::empty(),
    );
}

/// Defines all other settings and reserves their prefix. Called once, when the library is loaded.
pub fn define() {
    // Bounded so that one batch stays one short transaction.
    define_int(
        c"mailroom.batch_limit",
        c"Tokens that fill a batch.",
        c"The worker takes a batch at once when this many wait; also the default of mailroom_dequeue and mailroom_collect.",
        &BATCH_LIMIT,
        1..=100_000,
        GucFlags::empty(),
    );
    define_int(
        c"mailroom.batch_timeout",
        c"How long the oldest waiting token may wait for company.",
        c"0 sends every token at once. Password recoveries never wait.",
        &BATCH_TIMEOUT,
        0..=3_600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.poll_interval",
        c"How often an idle worker looks without being woken.",
        c"The safety net for wake-ups that never came, and how often finished mail is purged.",
        &POLL_INTERVAL,
        100..=3_600_000,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_bool_guc(
        c"mailroom.collect",
        c"Whether the worker takes the tokens that wait.",
        c"off leaves them to clients, by mailroom_dequeue; the worker notifies these, and does all of its other work.",
        &COLLECT,
        GucContext::Suset,
        GucFlags::empty(),
    );
    define_int(
        c"mailroom.activation_ttl",
        c"How long a new activation link is good for.",
        c"Of tokens for which expires_at is not given.",
        &ACTIVATION_TTL,
        1..=30 * 24 * 3600,
        GucFlags::UNIT_S,
    );
    // A mailbox is read by others too, and this link is as good as a password.
    define_int(
        c"mailroom.recovery_ttl",
        c"How long a new password recovery link is good for.",
        c"Of tokens for which expires_at is not given.",
        &RECOVERY_TTL,
        1..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.request_interval",
        c"How long after a link was sent it is not sent again on request.",
        c"Keeps strangers from flooding a mailbox. 0 for no such limit.",
        &REQUEST_INTERVAL,
        0..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.requests_per_hour",
        c"How often the open links of one account and action are sent within an hour, on request.",
        c"A new one goes whatever the count, where none is open or the one that is has a third of its life left.",
        &REQUESTS_PER_HOUR,
        1..=1_000,
        GucFlags::empty(),
    );
    define_int(
        c"mailroom.max_attempts",
        c"How often a message is tried before it ends as error.",
        c"The default of outbox.max_attempts.",
        &MAX_ATTEMPTS,
        1..=1_000,
        GucFlags::empty(),
    );
    // At most what the domains of the outbox take: one row must never be more than a claim can hold.
    define_int(
        c"mailroom.max_message_size",
        c"How large a message may be.",
        c"Subject, bodies and data of what is scheduled; what is in the outbox already is sent.",
        &MAX_MESSAGE_SIZE,
        1..=100 * 1024,
        GucFlags::UNIT_KB,
    );
    define_int(
        c"mailroom.lease",
        c"How long a claimed mail is its claimant's.",
        c"The default of mailroom_claim; longer than the slowest send, because what is not settled by then is sent again.",
        &LEASE,
        1..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.stop_grace",
        c"How long the worker waits at its end for answers to what it is sending.",
        c"A mail that has none by then may have been sent. A stop of the server takes as long.",
        &STOP_GRACE,
        0..=600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.retention",
        c"How long finished mails and the diary are kept.",
        c"What mailroom_purge deletes ended longer ago than this.",
        &RETENTION,
        0..=20 * 365 * 24 * 3600,
        GucFlags::UNIT_S,
    );
    // SAFETY: the hooks allocate nothing, do not panic and leave `newval` as it is.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"mailroom.channel",
            c"The channel on which new tokens are announced.",
            c"Any session may LISTEN to it, and any session's NOTIFY on it wakes the worker.",
            &CHANNEL,
            GucContext::Suset,
            GucFlags::empty(),
            Some(check_channel),
            None,
            None,
        );
        GucRegistry::define_string_guc_with_hooks(
            c"mailroom.outbox_channel",
            c"The channel on which it is announced that a message in the outbox is due.",
            c"For senders outside the server: LISTEN to it, and call mailroom_claim when something arrives.",
            &OUTBOX_CHANNEL,
            GucContext::Suset,
            GucFlags::empty(),
            Some(check_channel),
            None,
            None,
        );
    }
    GucRegistry::define_enum_guc(
        c"mailroom.notify",
        c"Who tells outside listeners of new tokens and of due messages.",
        c"auto: the worker on the writers' behalf, or without one the transaction itself; commit: always the transaction itself, one at a time in the whole cluster; off: nobody.",
        &NOTIFY,
        GucContext::Suset,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        c"mailroom.key_file",
        c"The file with the signing keys, one a line in 64 hexadecimal digits.",
        c"Of the server's user with mode 0600, or of root with mode 0640, or stricter. Empty: mailroom.key in the data directory, made by CREATE EXTENSION.",
        &KEY_FILE,
        GucContext::Suset,
        GucFlags::SUPERUSER_ONLY,
    );
    GucRegistry::define_string_guc(
        c"mailroom.transports_file",
        c"The file that says through which transports the worker delivers, in TOML.",
        c"Of the server's user with mode 0600, or of root with mode 0640, or stricter; relative to the data directory. Empty: the worker delivers nothing.",
        &TRANSPORTS_FILE,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // SAFETY: as above.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"mailroom.link_base_url",
            c"Where the links in token mail point to.",
            c"Scheme, host and path prefix, e.g. https://example.com/account; http for localhost alone; empty for mail without links.",
            &LINK_BASE_URL,
            GucContext::Suset,
            GucFlags::empty(),
            Some(check_link_base_url),
            None,
            None,
        );
    }
    GucRegistry::define_string_guc(
        c"mailroom.locale",
        c"The locale of mail that does not name one.",
        c"A tag such as en or pt-br, as in templates.locale; mail names its own in data, under locale.",
        &LOCALE,
        GucContext::Suset,
        GucFlags::empty(),
    );
    routing::define();
    // SAFETY: the argument is a NUL-terminated string that lives for ever.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"mailroom".as_ptr()) };
}

fn define_int(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    bounds: std::ops::RangeInclusive<i32>,
    flags: GucFlags,
) {
    let (min, max) = bounds.into_inner();
    GucRegistry::define_int_guc(
        name,
        short,
        long,
        setting,
        min,
        max,
        GucContext::Suset,
        flags,
    );
}

/// Refuses what NOTIFY would refuse: otherwise a mistyped channel would fail every INSERT.
unsafe extern "C-unwind" fn check_channel(
    newval: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes a pointer to the candidate, which is NUL-terminated or null.
    let candidate = unsafe { candidate(newval) };
    candidate.is_some_and(|name| (1..pg_sys::NAMEDATALEN as usize).contains(&name.count_bytes()))
}

/// Refuses links that would carry a token over the network for all to read.
unsafe extern "C-unwind" fn check_link_base_url(
    newval: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: as above.
    let candidate = unsafe { candidate(newval) };
    candidate.is_none_or(|url| keeps_tokens(url.to_bytes()))
}

/// Whether a link with this base keeps its token from the network: https, or this machine.
fn keeps_tokens(base: &[u8]) -> bool {
    let after = |scheme: &[u8]| {
        base.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            .then(|| &base[scheme.len()..])
    };
    if base.is_empty() || after(b"https://").is_some_and(|rest| !rest.is_empty()) {
        return true;
    }
    let Some(rest) = after(b"http://") else {
        return false;
    };
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let authority = &rest[..end.unwrap_or(rest.len())];
    [&b"localhost"[..], b"127.0.0.1", b"[::1]"]
        .iter()
        .any(|host| {
            authority
                .get(..host.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(host))
                && match &authority[host.len()..] {
                    [] => true,
                    [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
                    _ => false,
                }
        })
}

/// What a setting is to be set to.
///
/// # Safety
/// `newval` is null or points to null or to a NUL-terminated string, as in a check hook of the server's.
unsafe fn candidate<'a>(newval: *mut *mut c_char) -> Option<&'a CStr> {
    // SAFETY: see above.
    unsafe {
        newval
            .as_ref()
            .filter(|value| !value.is_null())
            .map(|value| CStr::from_ptr(*value))
    }
}

/// The batching rule in force.
pub fn batch_rule() -> Rule {
    Rule {
        limit: BATCH_LIMIT.get().unsigned_abs(),
        linger: millis(BATCH_TIMEOUT.get()),
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

/// `mailroom.outbox_channel`, never empty.
pub fn outbox_channel() -> CString {
    OUTBOX_CHANNEL
        .get()
        .unwrap_or_else(|| DEFAULT_OUTBOX_CHANNEL.to_owned())
}

/// `mailroom.max_attempts`.
pub fn max_attempts() -> i32 {
    MAX_ATTEMPTS.get()
}

/// The path of the key file; a relative one counts from the data directory.
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

/// A path as it was set, a relative one counted from the data directory.
fn in_data_directory(name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: DataDir is set before any library is loaded, NUL-terminated, and never changes.
    let data_directory = unsafe { CStr::from_ptr(pg_sys::DataDir) };
    // Joining an absolute name replaces the directory.
    PathBuf::from(std::ffi::OsStr::from_bytes(data_directory.to_bytes()))
        .join(std::ffi::OsStr::from_bytes(name.to_bytes()))
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

#[pg_extern(sql = false)]
fn _max_message_size() -> i64 {
    i64::from(MAX_MESSAGE_SIZE.get()) * 1024
}

#[pg_extern(sql = false)]
fn _lease() -> i32 {
    LEASE.get()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_their_tokens() {
        for good in [
            "",
            "https://example.com",
            "HTTPS://example.com/account",
            "http://localhost",
            "http://LOCALHOST:8080/account",
            "http://127.0.0.1:3000",
            "http://[::1]/a",
        ] {
            assert!(keeps_tokens(good.as_bytes()), "{good}");
        }
        for bad in [
            "example.com",
            "https://",
            "http://example.com",
            "http://localhost.example.com",
            "http://localhost@example.com",
            "http://localhost:80@example.com",
            "http://127.0.0.11",
            "javascript:alert(1)",
            "ftp://localhost",
        ] {
            assert!(!keeps_tokens(bad.as_bytes()), "{bad}");
        }
    }
}
