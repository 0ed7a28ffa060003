//! Which role may run which statement of the page.

/// The role that a statement takes at least; each has the rights of those before it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Role {
    Monitor,
    Support,
    Admin,
}
use Role::{Admin, Monitor, Support};

pub const ROLES: [(Role, &str); 3] = [
    (Monitor, "page_monitor"),
    (Support, "page_support"),
    (Admin, "page_admin"),
];

/// Each statement, who may run it, and calls of it: in the large database, each of them stays within its bounds.
pub const STATEMENTS: &[(&str, Role, &[&str])] = &[
    ("act_cancel", Support, &["1"]),
    ("act_pause", Admin, &[""]),
    (
        "act_request",
        Support,
        &[
            "'activation', 'nobody@example.com'",
            "'password_recovery', 'nobody@example.com'",
        ],
    ),
    ("act_reschedule", Support, &["1, '2030-01-01 12:00'"]),
    ("act_resume", Admin, &[""]),
    ("act_retry", Support, &["1"]),
    (
        "act_retry_failed",
        Support,
        &[
            "'none', NULL, NULL, NULL, NULL, 10000",
            "'none', 'ses', 'failed', 550, '2026-01-01 00:00:00.000001+00:00', 1",
        ],
    ),
    ("act_revoke", Support, &["1"]),
    ("act_send_again", Support, &["0"]),
    (
        "act_suppress",
        Support,
        &[
            "'gone@example.com', '', NULL",
            "'gone@example.com', 'news', '2100-01-01'",
        ],
    ),
    (
        "act_unsuppress",
        Support,
        &[
            "'gone@example.com', '', NULL",
            "'gone@example.com', 'news', 'manual,complained'",
        ],
    ),
    ("act_wake", Admin, &[""]),
    (
        "answer",
        Support,
        &[
            "'u7@example.com', 200007",
            "'ann@example.com', NULL",
            "'no address', NULL",
        ],
    ),
    ("attachments", Support, &["4716"]),
    ("attachments_contents", Admin, &["4716"]),
    ("clock", Monitor, &[""]),
    ("events", Support, &["4716"]),
    ("failures", Support, &["'24 hours'", "'100 days'"]),
    ("failures_monitor", Monitor, &["'100 days'"]),
    ("history", Monitor, &["4716"]),
    ("kinds", Support, &[""]),
    ("kinds_monitor", Monitor, &[""]),
    ("log", Support, &["NULL, NULL, 51", "5, 4716, 51"]),
    ("message", Support, &["4716"]),
    ("message_contents", Admin, &["4716"]),
    ("message_monitor", Monitor, &["4716"]),
    (
        "messages",
        Support,
        &[
            "NULL, NULL, NULL, NULL, 51",
            "100000, NULL, NULL, NULL, 51",
            "NULL, 'cancelled', NULL, NULL, 51",
            "NULL, 'scheduled', NULL, NULL, 51",
            "150000, 'error', 'invoice', 'ses', 51",
            "NULL, 'error', 'none', NULL, 51",
            "150000, NULL, 'none', NULL, 51",
            "NULL, NULL, NULL, 'none', 51",
            "-9223372036854775808, 'error', NULL, NULL, 51",
        ],
    ),
    (
        "messages_by_address",
        Support,
        &[
            "'Ann@Example.com', NULL, 51",
            "'u77@example.com', NULL, 51",
            "'u77@example.com', 100000, 51",
            "'ops@example.com', NULL, 51",
            "'ops@example.com', 100000, 51",
            "'no address', NULL, 51",
        ],
    ),
    (
        "messages_by_key",
        Support,
        &[
            "'4711', NULL, 51",
            "'Message-ID: <01900000-0000-7000-8000-000000000000@example.com>', NULL, 51",
            "'provider-5', NULL, 51",
            "'order-5', NULL, 51",
            "'order-5', 100000, 51",
        ],
    ),
    (
        "messages_monitor",
        Monitor,
        &[
            "NULL, NULL, NULL, NULL, 51",
            "150000, 'suppressed', NULL, NULL, 51",
            "150000, 'error', NULL, 'ses', 51",
        ],
    ),
    ("now_problems", Monitor, &[""]),
    ("now_status", Monitor, &[""]),
    ("pauses", Monitor, &[""]),
    ("retention", Monitor, &[""]),
    ("reported", Monitor, &["'{1,4716,150000,200000}'"]),
    (
        "retryable",
        Support,
        &[
            "'invoice', NULL, NULL, NULL, '1 day'",
            "NULL, 'ses', 'failed', 550, NULL",
        ],
    ),
    ("rights", Monitor, &[""]),
    (
        "suppressions",
        Support,
        &[
            "NULL, NULL, NULL, 51, NULL",
            "'gone@example.com', NULL, NULL, 51, NULL",
            "NULL, '2030-01-01', 'a@example.com', 51, 'news'",
        ],
    ),
    (
        "suppressions_key",
        Support,
        &["'Gone <gone@example.com>'", "'no address'"],
    ),
    (
        "template_preview",
        Support,
        &[
            "'activation', NULL, NULL",
            "'activation', '{\"login\": \"bob\"}', 'en'",
        ],
    ),
    ("templates", Support, &[""]),
    ("transports", Monitor, &[""]),
    ("transports_due", Monitor, &[""]),
    ("waits", Monitor, &["'{200001,200002,220000}'"]),
];

/// Columns of `rights`, each with a statement that a role with it may run.
pub const RIGHTS: &[(&str, &str)] = &[
    ("sees_mail", "messages_monitor"),
    ("sees_addresses", "messages"),
    ("sees_contents", "message_contents"),
    ("sees_transports", "transports"),
    ("sees_templates", "template_preview"),
    ("sees_log", "log"),
    ("sees_suppressions", "suppressions"),
    ("may_retry", "act_retry"),
    ("may_cancel", "act_cancel"),
    ("may_reschedule", "act_reschedule"),
    ("may_send_again", "act_send_again"),
    ("may_retry_failed", "act_retry_failed"),
    ("may_pause", "act_pause"),
    ("may_wake", "act_wake"),
    ("may_suppress", "act_suppress"),
    ("may_unsuppress", "act_unsuppress"),
    ("may_revoke", "act_revoke"),
    ("may_request", "act_request"),
];
