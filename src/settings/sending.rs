//! The settings of delivery: who sends, where to, and how patiently.
//!
//! Endpoints, files and networks come from here alone, never from a row or an argument.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::time::Duration;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;

use super::{define_int, in_data_directory, millis};
use mailroom_core::transport::network::Networks;

static SENDER: GucSetting<Sender> = GucSetting::<Sender>::new(Sender::Outbox);
static ENDPOINT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static FROM: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static CREDENTIALS_FILE: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c""));
static CA_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static ALLOWED_NETWORKS: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c""));
static HTTP_CONCURRENCY: GucSetting<i32> = GucSetting::<i32>::new(64);
static HTTP_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(0);
static CONNECT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(5_000);
static MAX_AMBIGUOUS: GucSetting<i32> = GucSetting::<i32>::new(1);

/// Who delivers the outbox: the values of `mailroom.sender`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Sender {
    /// Clients, by mailroom_claim.
    #[name = c"outbox"]
    Outbox,
    /// The worker, to an application's own receiver.
    #[name = c"webhook"]
    Webhook,
    /// The worker, through Amazon SES.
    #[name = c"ses"]
    Ses,
    /// The worker, through SendGrid.
    #[name = c"sendgrid"]
    Sendgrid,
    /// The worker, through Postmark.
    #[name = c"postmark"]
    Postmark,
    /// The worker, through Resend.
    #[name = c"resend"]
    Resend,
    /// The worker, through Mailgun.
    #[name = c"mailgun"]
    Mailgun,
}

impl Sender {
    /// As it is written in the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Webhook => "webhook",
            Self::Ses => "ses",
            Self::Sendgrid => "sendgrid",
            Self::Postmark => "postmark",
            Self::Resend => "resend",
            Self::Mailgun => "mailgun",
        }
    }
}

/// Defines them all. Called by [`super::define`].
pub fn define() {
    GucRegistry::define_enum_guc(
        c"mailroom.sender",
        c"Who delivers the mail in the outbox.",
        c"outbox: clients, which call mailroom_claim; any other: the worker, over HTTP.",
        &SENDER,
        GucContext::Suset,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        c"mailroom.endpoint",
        c"Where the worker sends mail to, an https URL.",
        c"Empty for the provider's own; a webhook has none. http only to a loopback address that mailroom.allowed_networks has.",
        &ENDPOINT,
        GucContext::Suset,
        GucFlags::SUPERUSER_ONLY,
    );
    GucRegistry::define_string_guc(
        c"mailroom.from",
        c"The sender's address, with or without a display name.",
        c"As the provider knows it; a webhook needs none.",
        &FROM,
        GucContext::Suset,
        GucFlags::empty(),
    );
    GucRegistry::define_string_guc(
        c"mailroom.credentials_file",
        c"The file with what the provider wants to know its customer by.",
        c"Lines of name = value; of the server's user with mode 0600, or of root with mode 0640, or stricter. A relative name counts from the data directory.",
        &CREDENTIALS_FILE,
        GucContext::Suset,
        GucFlags::SUPERUSER_ONLY,
    );
    GucRegistry::define_string_guc(
        c"mailroom.ca_file",
        c"Certificates of the authorities that may vouch for the endpoint, in PEM.",
        c"Empty for those that the system trusts; a relative name counts from the data directory.",
        &CA_FILE,
        GucContext::Suset,
        GucFlags::SUPERUSER_ONLY,
    );
    // SAFETY: the hook allocates nothing of the server's, does not panic and leaves `newval` as it is.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"mailroom.allowed_networks",
            c"Networks that the endpoint may be in although they are private.",
            c"A list as in 127.0.0.0/8, ::1, 10.1.0.0/16. Public addresses need not be listed.",
            &ALLOWED_NETWORKS,
            GucContext::Suset,
            GucFlags::SUPERUSER_ONLY,
            Some(check_networks),
            None,
            None,
        );
    }
    define_int(
        c"mailroom.http_concurrency",
        c"Requests that a worker has under way at a time.",
        c"Never more. A provider that asks for less gets half as many, then slowly more again.",
        &HTTP_CONCURRENCY,
        1..=1_000,
        GucFlags::empty(),
    );
    define_int(
        c"mailroom.http_timeout",
        c"How long one request may take, connecting included.",
        c"0: 30 s for a webhook, 60 s for the others. A mail whose request took longer may have been sent.",
        &HTTP_TIMEOUT,
        0..=600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.connect_timeout",
        c"How long looking up, connecting and agreeing on TLS may take.",
        c"A request that was never written can be repeated safely, so this may be short.",
        &CONNECT_TIMEOUT,
        100..=600_000,
        GucFlags::UNIT_MS,
    );
    define_int(
        c"mailroom.max_ambiguous",
        c"How often a mail is sent again that may have been sent.",
        c"Then it ends as error. Providers that recognise a repeated request are asked again up to mailroom.max_attempts.",
        &MAX_AMBIGUOUS,
        0..=100,
        GucFlags::empty(),
    );
}

/// Refuses what is no list of networks when it is set, not when mail is to be sent.
unsafe extern "C-unwind" fn check_networks(
    newval: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes a pointer to the candidate, which is NUL-terminated or null.
    let candidate = unsafe {
        newval
            .as_ref()
            .filter(|value| !value.is_null())
            .map(|value| CStr::from_ptr(*value))
    };
    candidate.is_none_or(|list| {
        list.to_str()
            .is_ok_and(|list| Networks::parse(list).is_ok())
    })
}

/// `mailroom.sender`.
pub fn sender() -> Sender {
    SENDER.get()
}

/// `mailroom.endpoint`; `None` when it is empty.
pub fn endpoint() -> Option<String> {
    text(&ENDPOINT)
}

/// `mailroom.from`; `None` when it is empty.
pub fn from() -> Option<String> {
    text(&FROM)
}

/// The path of the credentials; `None` when none is set.
pub fn credentials_file() -> Option<PathBuf> {
    file(&CREDENTIALS_FILE)
}

/// The path of the authorities' certificates; `None` for the system's.
pub fn ca_file() -> Option<PathBuf> {
    file(&CA_FILE)
}

/// `mailroom.allowed_networks`, which was checked when it was set.
pub fn allowed_networks() -> Networks {
    text(&ALLOWED_NETWORKS)
        .and_then(|list| Networks::parse(&list).ok())
        .unwrap_or_default()
}

/// `mailroom.http_concurrency`.
pub fn http_concurrency() -> usize {
    HTTP_CONCURRENCY.get().unsigned_abs() as usize
}

/// `mailroom.http_timeout`, for this sender if it is 0.
pub fn http_timeout(sender: Sender) -> Duration {
    match (HTTP_TIMEOUT.get(), sender) {
        (0, Sender::Webhook) => Duration::from_secs(30),
        (0, _) => Duration::from_secs(60),
        (set, _) => millis(set),
    }
}

/// `mailroom.connect_timeout`.
pub fn connect_timeout() -> Duration {
    millis(CONNECT_TIMEOUT.get())
}

/// `mailroom.max_ambiguous`.
pub fn max_ambiguous() -> i32 {
    MAX_AMBIGUOUS.get()
}

fn text(setting: &GucSetting<Option<CString>>) -> Option<String> {
    let value = setting.get()?.to_string_lossy().trim().to_owned();
    (!value.is_empty()).then_some(value)
}

fn file(setting: &GucSetting<Option<CString>>) -> Option<PathBuf> {
    setting
        .get()
        .filter(|name| !name.is_empty())
        .map(|name| in_data_directory(&name))
}
