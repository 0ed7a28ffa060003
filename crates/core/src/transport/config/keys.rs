//! The keys of a transport, and the form of their values. Pure.

use crate::events;
use crate::transport::providers;

/// The providers that do not use HTTP.
const OTHERS: [&str; 3] = ["smtp", "file", "log"];
/// The suffix of a key whose value is in a file.
pub(super) const FILE: &str = "_file";
/// The maximum edit distance at which another key is suggested.
const SLIP: usize = 2;

/// The providers that accept a key.
#[derive(Clone, Copy)]
enum Of {
    All,
    /// Those that use HTTP.
    Http,
    /// Those that open connections.
    Network,
    /// Those with an API key.
    ApiKey,
    /// Those whose webhooks are understood.
    Events,
    Only(&'static str),
}

/// A key.
pub(super) struct Key {
    pub(super) name: &'static str,
    of: Of,
    /// Whether the key `NAME_file` exists too.
    pub(super) is_secret: bool,
    /// The form of the value.
    pub(super) hint: &'static str,
}

const fn common(name: &'static str, hint: &'static str) -> Key {
    own(name, Of::All, hint)
}

const fn own(name: &'static str, of: Of, hint: &'static str) -> Key {
    Key {
        name,
        of,
        is_secret: false,
        hint,
    }
}

const fn secret(name: &'static str, of: Of, hint: &'static str) -> Key {
    Key {
        name,
        of,
        is_secret: true,
        hint,
    }
}

pub(super) const KEYS: [Key; 32] = [
    common(
        "provider",
        // `hint` adds their names.
        "Write one of",
    ),
    own(
        "endpoint",
        Of::Http,
        "Write an https URL; an http URL is for a receiver on a private network in allowed_networks, and with an API key for one on this machine. Without one, mail goes to the provider's own; a webhook has none.",
    ),
    common(
        "from",
        "Write an address, or a name and an address as in \"Shop <shop@example.com>\"; before the @ in ASCII, which every provider takes.",
    ),
    common(
        "allow_from",
        "Write an array of addresses, or of domains as in [\"*@example.com\"].",
    ),
    own(
        "ca_file",
        Of::Network,
        "Write the name of a file with certificates in PEM; a relative one counts from the directory of the transports file.",
    ),
    own(
        "allowed_networks",
        Of::Network,
        "Write an array of networks, as in [\"10.0.0.0/8\", \"::1\"].",
    ),
    common(
        "databases",
        "Write an array of names of databases, or leave it out for all.",
    ),
    own(
        "concurrency",
        Of::Network,
        "Write a whole number from 1 to 1000.",
    ),
    own(
        "timeout",
        Of::Network,
        "Write a time of at most 10 min with its unit (us, ms, s, min), as in \"60 s\".",
    ),
    own(
        "connect_timeout",
        Of::Network,
        "Write a time from 100 ms to 10 min with its unit (us, ms, s, min), as in \"5 s\".",
    ),
    common(
        "rate",
        "Write a whole number from 1 to 1000000 and a unit, as in \"14 recipients/s\": recipients, requests or messages per s, min or h.",
    ),
    common("max_ambiguous", "Write a whole number from 0 to 100."),
    secret(
        "api_key",
        Of::ApiKey,
        "Write the key that the provider issued, or its file's name as api_key_file.",
    ),
    secret(
        "access_key_id",
        Of::Only("ses"),
        "Write the id of the access key, or its file's name as access_key_id_file.",
    ),
    secret(
        "secret_access_key",
        Of::Only("ses"),
        "Write the secret of the access key, or its file's name as secret_access_key_file.",
    ),
    secret(
        "session_token",
        Of::Only("ses"),
        "Write the token of temporary credentials, or its file's name as session_token_file.",
    ),
    secret(
        "event_secret",
        Of::Events,
        "Write what proves that a webhook is the provider's: of resend \"whsec_\" and base64, of sendgrid the verification key, of mailgun the webhook signing key, of postmark and ses \"user:password\"; or its file's name as event_secret_file; two of them as event_secrets = [\"new\", \"old\"] or, one a line, in event_secrets_file.",
    ),
    own(
        "event_topic",
        Of::Only("ses"),
        "Write the ARN of the SNS topic that SES publishes events to, as in \"arn:aws:sns:eu-west-1:123456789012:mail\".",
    ),
    own(
        "region",
        Of::Only("ses"),
        "Write an AWS region, as in \"eu-west-1\".",
    ),
    own(
        "configuration_set",
        Of::Only("ses"),
        "Write the name of an SES configuration set, or leave it out.",
    ),
    own(
        "domain",
        Of::Only("mailgun"),
        "Write the domain that Mailgun knows, in ASCII; without it, that of from.",
    ),
    own(
        "message_stream",
        Of::Only("postmark"),
        "Write the id of a Postmark message stream, or leave it out.",
    ),
    own(
        "host",
        Of::Only("smtp"),
        "Write the relay's name, as in \"smtp.example.com\", or its address; the port has a key of its own.",
    ),
    own(
        "port",
        Of::Only("smtp"),
        "Write a whole number from 1 to 65535; without it, 587, or 465 with tls = \"implicit\".",
    ),
    own(
        "tls",
        Of::Only("smtp"),
        "Write \"starttls\", the default, \"implicit\" (usually port 465) or \"none\", for a relay on a private network in allowed_networks, with credentials on this machine only.",
    ),
    own(
        "username",
        Of::Only("smtp"),
        "Write the user's name at the relay, and password, password_file or token_file with it.",
    ),
    secret(
        "password",
        Of::Only("smtp"),
        "Write the password at the relay, or its file's name as password_file.",
    ),
    own(
        "token_file",
        Of::Only("smtp"),
        "Write the name of a file with an access token for XOAUTH2, in place of a password; it is read for each connection.",
    ),
    own(
        "helo",
        Of::Only("smtp"),
        "Write the name by which the relay knows this machine; without it, the domain of from.",
    ),
    own(
        "bounce_address",
        Of::Only("smtp"),
        "Write the address that reports of failed delivery go to; without it, that of the sender.",
    ),
    own(
        "directory",
        Of::Only("file"),
        "Write the name of a directory that the server's user can write to; a relative one counts from that of the transports file.",
    ),
    secret(
        "secret",
        Of::Only("webhook"),
        "Write \"whsec_\" and 24 to 64 bytes in base64, or the file's name as secret_file; two of them as secrets = [\"new\", \"old\"] or, one a line, in secrets_file.",
    ),
];

/// The key with several values, of a secret that can be rotated without a gap.
pub(super) fn plural(name: &str) -> Option<&'static str> {
    match name {
        "secret" => Some("secrets"),
        "event_secret" => Some("event_secrets"),
        _ => None,
    }
}

impl Key {
    /// Whether this provider accepts the key.
    pub(super) fn is_of(&self, provider: &str) -> bool {
        let http = providers::ALL.iter().find(|entry| entry.name == provider);
        match self.of {
            Of::All => true,
            Of::Http => http.is_some(),
            Of::Network => http.is_some() || provider == "smtp",
            Of::ApiKey => http.is_some_and(|entry| entry.has_api_key),
            Of::Events => events::PROVIDERS.contains(&provider),
            Of::Only(name) => name == provider,
        }
    }
}

/// The names of all providers.
pub(super) fn providers() -> impl Iterator<Item = &'static str> {
    providers::ALL.iter().map(|entry| entry.name).chain(OTHERS)
}

/// The key with this name, its plural, or its `_file` form.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    let by = |name: &str| {
        let is_it = |key: &&Key| key.name == name || plural(key.name) == Some(name);
        KEYS.iter().find(is_it)
    };
    by(name).or_else(|| {
        let key = by(name.strip_suffix(FILE)?)?;
        key.is_secret.then_some(key)
    })
}

/// The form of the value of this key.
pub(super) fn hint(name: &str) -> String {
    let hint = find(name).map_or("", |key| key.hint);
    if name == "provider" {
        let all: Vec<_> = providers().map(|name| format!("\"{name}\"")).collect();
        return format!("{hint} {}.", all.join(", "));
    }
    hint.to_owned()
}

/// The names that this provider accepts.
pub(super) fn names(provider: &str) -> Vec<String> {
    let mut names = Vec::new();
    for key in KEYS.iter().filter(|key| key.is_of(provider)) {
        for name in [Some(key.name), plural(key.name)].into_iter().flatten() {
            names.push(name.to_owned());
            if key.is_secret {
                names.push(format!("{name}{FILE}"));
            }
        }
    }
    names
}

/// The name that was probably meant.
pub(super) fn nearest(name: &str, provider: &str) -> Option<String> {
    let names = names(provider).into_iter();
    names
        .map(|known| (distance(name, &known), known))
        .filter(|(distance, _)| *distance <= SLIP)
        .min()
        .map(|(_, known)| known)
}

/// The number of bytes to change, insert or delete to turn one string into the other (Levenshtein distance).
fn distance(one: &str, other: &str) -> usize {
    if one.len().abs_diff(other.len()) > SLIP {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, byte) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (column, candidate) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(byte != candidate);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_keys() {
        for (name, key) in [
            ("api_key", "api_key"),
            ("api_key_file", "api_key"),
            ("ca_file", "ca_file"),
            ("secrets", "secret"),
            ("secrets_file", "secret"),
            ("event_secrets_file", "event_secret"),
        ] {
            assert_eq!(find(name).unwrap().name, key);
        }
        for none in ["", "_file", "region_file", "ca", "api_key_file_file"] {
            assert!(find(none).is_none(), "{none}");
        }
        for provider in providers() {
            assert!(names(provider).iter().all(|name| find(name).is_some()));
        }
    }

    #[test]
    fn slips() {
        assert_eq!(nearest("concurency", "ses"), Some("concurrency".to_owned()));
        assert_eq!(nearest("apikey", "resend"), Some("api_key".to_owned()));
        assert_eq!(nearest("apikey", "ses"), None);
        assert_eq!(
            nearest("secret_flie", "webhook"),
            Some("secret_file".to_owned())
        );
        assert_eq!(nearest("hunter2", "webhook"), None);
        assert_eq!(distance("kitten", "sittin"), 2);
    }
}
