//! Each setting with its name, unit, bounds, default and descriptions.

use std::ffi::CStr;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::pg::options;
use crate::pg::shared_memory::SLOTS;

use super::checks::{Channel, LinkBaseUrl, TransportName};
use super::{
    ACTIVATION_TTL, BATCH_LIMIT, BATCH_TIMEOUT, CHANNEL, COLLECT, KEY_FILE, LEASE, LINK_BASE_URL,
    LOCALE, MAX_ATTEMPTS, MAX_DATABASES, MAX_MESSAGE_SIZE, NOTIFY, POLL_INTERVAL, RECOVERY_TTL,
    REDIRECT_TO, REQUEST_INTERVAL, REQUESTS_PER_HOUR, RETENTION, STOP_GRACE, TRANSPORT,
    TRANSPORTS_FILE,
};

/// Defines what can be defined only while libraries are being preloaded. To be called before [`define`].
pub fn define_preloaded() {
    GucRegistry::define_int_guc(
        c"mailroom.max_databases",
        c"Databases that can have a worker at the same time.",
        c"Each worker takes one of max_worker_processes, and the launcher one more.",
        &MAX_DATABASES,
        1,
        SLOTS as i32,
        GucContext::Postmaster,
        GucFlags::empty(),
    );
}

/// Defines all other settings and reserves their prefix. Called once, when the library is loaded.
pub fn define() {
    define_queue();
    define_tokens();
    define_outbox();
    define_transports();
    options::reserve_prefix(c"mailroom");
}

/// Batches of tokens, and who hears of them.
fn define_queue() {
    // Bounded so that one batch stays one short transaction.
    define_int(
        c"mailroom.batch_limit",
        c"Sets the number of tokens that fill a batch.",
        c"The worker takes a batch as soon as this many wait. Also the default limit of mailroom_dequeue and mailroom_collect.",
        &BATCH_LIMIT,
        1..=100_000,
        GucFlags::empty(),
    );
    define_int(
        c"mailroom.batch_timeout",
        c"Sets the maximum time that a token waits for a batch to fill.",
        c"0 collects each token at once. Password recoveries never wait.",
        &BATCH_TIMEOUT,
        0..=3_600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.poll_interval",
        c"Sets the time between two polls of an idle worker.",
        c"Finds what was committed without a wake-up, and purges ended rows.",
        &POLL_INTERVAL,
        100..=3_600_000,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_bool_guc(
        c"mailroom.collect",
        c"Has the worker collect waiting tokens.",
        c"If off, clients take them with mailroom_dequeue; the worker notifies clients and does all its other work.",
        &COLLECT,
        GucContext::Suset,
        GucFlags::empty(),
    );
    options::define_checked::<Channel>(
        c"mailroom.channel",
        c"Sets the channel on which new tokens are announced.",
        c"Any session may LISTEN on it. A NOTIFY on it from any session wakes the worker.",
        &CHANNEL,
    );
    GucRegistry::define_enum_guc(
        c"mailroom.notify",
        c"Selects the process that notifies listeners of new tokens and due messages.",
        c"auto: the worker, or without one the transaction that wrote them. commit: that transaction, which lets one commit of the cluster through at a time. off: none.",
        &NOTIFY,
        GucContext::Suset,
        GucFlags::empty(),
    );
}

/// Tokens, their links and the key that signs them.
fn define_tokens() {
    define_int(
        c"mailroom.activation_ttl",
        c"Sets the lifetime of a new activation link.",
        c"Applies to tokens that are inserted without expires_at.",
        &ACTIVATION_TTL,
        1..=30 * 24 * 3600,
        GucFlags::UNIT_S,
    );
    // A mailbox is read by others too, and this link is as good as a password.
    define_int(
        c"mailroom.recovery_ttl",
        c"Sets the lifetime of a new password recovery link.",
        c"Applies to tokens that are inserted without expires_at.",
        &RECOVERY_TTL,
        1..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.request_interval",
        c"Sets the minimum time between two mails with the same link on request.",
        c"Limits how much mail a stranger can cause. 0 disables the limit.",
        &REQUEST_INTERVAL,
        0..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.requests_per_hour",
        c"Sets how many mails with links of one action an account gets within an hour before requests wait.",
        c"Beyond that, a request is answered if the latest of these mails is 3600 / requests_per_hour seconds old. Mails that the lifecycle of the account sent count too.",
        &REQUESTS_PER_HOUR,
        1..=1_000,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        c"mailroom.key_file",
        c"Sets the file with the signing keys, one per line in 64 hexadecimal digits.",
        c"Must belong to the server's user with mode 0600, or to root with mode 0640, or stricter. Empty: mailroom.key in the data directory, created by CREATE EXTENSION.",
        &KEY_FILE,
        GucContext::Suset,
        GucFlags::SUPERUSER_ONLY,
    );
    options::define_checked::<LinkBaseUrl>(
        c"mailroom.link_base_url",
        c"Sets the base URL of the links in token mail.",
        c"Scheme, host and path prefix in ASCII, such as https://example.com/account, without query and fragment. http is accepted for localhost only. Empty: mail without links.",
        &LINK_BASE_URL,
    );
    GucRegistry::define_string_guc(
        c"mailroom.locale",
        c"Sets the locale of mail that does not name one.",
        c"A tag such as en or pt-br, as in templates.locale. A message names its own in data, as locale.",
        &LOCALE,
        GucContext::Suset,
        GucFlags::empty(),
    );
}

/// Messages, from scheduling to purge.
fn define_outbox() {
    define_int(
        c"mailroom.max_attempts",
        c"Sets the number of failed attempts after which a message ends as error.",
        c"The default of outbox.max_attempts.",
        &MAX_ATTEMPTS,
        1..=1_000,
        GucFlags::empty(),
    );
    // At most what the domains of the outbox take: one row must never be more than a claim can hold.
    define_int(
        c"mailroom.max_message_size",
        c"Sets the maximum size of a message.",
        c"Counts subject, bodies and data when a message is scheduled. Messages that are in the outbox are sent regardless of it.",
        &MAX_MESSAGE_SIZE,
        1..=100 * 1024,
        GucFlags::UNIT_KB,
    );
    define_int(
        c"mailroom.lease",
        c"Sets the default lease of mailroom_claim.",
        c"Must be longer than the slowest send: a message that is not settled by then is sent again.",
        &LEASE,
        1..=24 * 3600,
        GucFlags::UNIT_S,
    );
    define_int(
        c"mailroom.stop_grace",
        c"Sets how long a worker that stops waits for the responses to its requests in flight.",
        c"A message without a response by then is ambiguous. A shutdown of the server takes as long, and so does DROP DATABASE.",
        &STOP_GRACE,
        0..=600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.retention",
        c"Sets how long ended messages, ended tokens and the history are kept.",
        c"mailroom_purge deletes rows that ended longer ago.",
        &RETENTION,
        0..=20 * 365 * 24 * 3600,
        GucFlags::UNIT_S,
    );
}

/// Where messages go.
fn define_transports() {
    GucRegistry::define_string_guc(
        c"mailroom.transports_file",
        c"Sets the file that configures the worker's transports, in TOML.",
        c"Must belong to the server's user with mode 0600, or to root with mode 0640, or stricter. A relative path starts at the data directory. Empty: the worker delivers nothing.",
        &TRANSPORTS_FILE,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    options::define_checked::<TransportName>(
        c"mailroom.transport",
        c"Sets the transport of new mail for whose kind there is no route.",
        c"A name that matches [a-z][a-z0-9_-]{0,62}. Empty: clients deliver such mail with mailroom_claim.",
        &TRANSPORT,
    );
    // The deliverer checks it: a value that is no address holds all mail, and must not be ignored.
    GucRegistry::define_string_guc(
        c"mailroom.redirect_to",
        c"Sets an address that all mail goes to instead of its recipients.",
        c"For development. A header names the original recipients. Empty: mail goes to its recipients. A value that is not an address holds all mail.",
        &REDIRECT_TO,
        GucContext::Suset,
        GucFlags::empty(),
    );
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
