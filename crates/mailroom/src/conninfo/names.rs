//! The names of the options. Pure.

use super::{ConninfoError, problem};

/// The supported options, each with the environment variable of its default.
pub const KNOWN: [(&str, Option<&str>); 24] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("dbname", Some("PGDATABASE")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("passfile", Some("PGPASSFILE")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("options", Some("PGOPTIONS")),
    ("application_name", Some("PGAPPNAME")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
    ("tcp_user_timeout", None),
    // Accepted and ignored: their behaviour is the default here, or does not apply.
    ("client_encoding", None),
    ("fallback_application_name", None),
];

/// Other options that programs are given; an error may name them.
const UNSUPPORTED: [&str; 17] = [
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "ssl",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcrl",
    "sslcrldir",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
];

/// Checks the name of an option, which may be a part of a password that is not quoted.
///
/// # Errors
/// The name if programs are given such an option, otherwise its number and the remark.
pub fn check_name(name: &str, number: usize, remark: &str) -> Result<(), ConninfoError> {
    if KNOWN.iter().any(|(known, _)| *known == name) {
        Ok(())
    } else if UNSUPPORTED.contains(&name) {
        problem(format!("the connection option \"{name}\" is not supported"))
    } else {
        problem(format!(
            "option {number} of the connection string is not known; {remark}"
        ))
    }
}

/// Whether the text seems to be a URL, or the rest of one: it may contain a password.
pub fn looks_like_url(text: &str) -> bool {
    text.contains("://")
        || text
            .split_once(':')
            .is_some_and(|(_, rest)| rest.contains('@'))
}
