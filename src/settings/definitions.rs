//! Each setting with its name, unit, bounds, default and descriptions.

use std::ffi::CStr;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::pg::options;
use crate::pg::shared_memory::SLOTS;

use super::checks::{Channel, LinkBaseUrl, TransportName};
use super::{
    ACTIVATION_TTL, BATCH_LIMIT, BATCH_TIMEOUT, CHANNEL, COLLECT, KEY_FILE, LEASE, LINK_BASE_URL,
    LOCALE, MAX_ATTEMPTS, MAX_DATABASES, MAX_MESSAGE_SIZE, NOTIFY, OUTBOX_CHANNEL, POLL_INTERVAL,
    RECOVERY_TTL, REDIRECT_TO, REQUEST_INTERVAL, REQUESTS_PER_HOUR, RETENTION, STOP_GRACE,
    TRANSPORT, TRANSPORTS_FILE,
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
        c"A new link is sent regardless of the count if none is open, or if less than a third of its life is left.",
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
    options::define_checked::<Channel>(
        c"mailroom.channel",
        c"The channel on which new tokens are announced.",
        c"Any session may LISTEN to it, and any session's NOTIFY on it wakes the worker.",
        &CHANNEL,
    );
    options::define_checked::<Channel>(
        c"mailroom.outbox_channel",
        c"The channel on which it is announced that a message in the outbox is due.",
        c"For senders outside the server: LISTEN to it, and call mailroom_claim when something arrives.",
        &OUTBOX_CHANNEL,
    );
    GucRegistry::define_enum_guc(
        c"mailroom.notify",
        c"Who tells outside listeners of new tokens and of due messages.",
        c"auto: the worker on the writers' behalf, or without one the transaction itself; commit: always the transaction itself, one at a time in the whole cluster; off: no process.",
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
    options::define_checked::<LinkBaseUrl>(
        c"mailroom.link_base_url",
        c"Where the links in token mail point to.",
        c"Scheme, host and path prefix, e.g. https://example.com/account; http for localhost alone; empty for mail without links.",
        &LINK_BASE_URL,
    );
    GucRegistry::define_string_guc(
        c"mailroom.locale",
        c"The locale of mail that does not name one.",
        c"A tag such as en or pt-br, as in templates.locale; mail names its own in data, under locale.",
        &LOCALE,
        GucContext::Suset,
        GucFlags::empty(),
    );
    options::define_checked::<TransportName>(
        c"mailroom.transport",
        c"The transport of new mail for whose kind there is no route.",
        c"A name as in [a-z][a-z0-9_-]{0,62}. Empty: clients deliver it, by mailroom_claim.",
        &TRANSPORT,
    );
    // The deliverer checks it: a value that is no address holds all mail, and must not be ignored.
    GucRegistry::define_string_guc(
        c"mailroom.redirect_to",
        c"The address that all mail goes to, instead of its recipients.",
        c"For development; a header of the mail names the recipients. Empty: mail goes to these. What is no address holds all mail.",
        &REDIRECT_TO,
        GucContext::Suset,
        GucFlags::empty(),
    );
    options::reserve_prefix(c"mailroom");
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
