//! Fuzzes the responses of HTTP providers: each message of a request has an outcome, none counts as sent without a status of
//! success, and what reaches a log is one line.
//!
//! The input is a byte for the provider, one for the number of messages, one for the status, headers as lines up to an
//! empty one, and the body.

#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use mailroom_core::transport::config::{self, Method};
use mailroom_core::transport::providers::{MessageOutcome, Provider, Response};

const STATUSES: [u16; 20] = [
    200, 201, 202, 204, 301, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 429, 500, 502, 503,
    529,
];

const TRANSPORTS: &str = r#"
[transports.webhook]
provider = "webhook"
endpoint = "https://app.example.com/mail"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
[transports.ses]
provider = "ses"
from = "a@example.com"
region = "eu-west-1"
access_key_id = "AKIDEXAMPLE"
secret_access_key = "example"
[transports.sendgrid]
provider = "sendgrid"
from = "a@example.com"
api_key = "SG.example"
[transports.postmark]
provider = "postmark"
from = "a@example.com"
api_key = "00000000-0000-0000-0000-000000000000"
[transports.resend]
provider = "resend"
from = "a@example.com"
api_key = "re_example"
[transports.mailgun]
provider = "mailgun"
from = "a@example.com"
api_key = "key-example"
"#;

static PROVIDERS: LazyLock<Vec<Arc<dyn Provider>>> = LazyLock::new(|| {
    let all = config::parse(TRANSPORTS, Path::new("/nonexistent"));
    let all = all.unwrap_or_else(|error| panic!("{error}")).into_iter();
    all.map(|transport| match transport.method {
        Method::Http { provider, .. } => provider,
        Method::Single(_) => panic!("{} is no HTTP provider", transport.name),
    })
    .collect()
});

fuzz_target!(|data: &[u8]| {
    let Some(([provider, messages, status], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let provider = &PROVIDERS[usize::from(*provider) % PROVIDERS.len()];
    let messages = 1 + usize::from(*messages) % provider.batch_limit();
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let end = rest.windows(2).position(|two| two == b"\n\n");
    let (head, body) = match end {
        Some(end) => (&rest[..end], &rest[end + 2..]),
        None => (&b""[..], rest),
    };
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), value) {
            headers.append(name, value);
        }
    }
    for is_broken_off in [false, true] {
        let response = Response {
            status,
            headers: &headers,
            body,
            is_broken_off,
            now: UNIX_EPOCH + Duration::from_secs(1_767_323_045),
        };
        let outcomes = provider.outcomes(messages, &response);
        assert_eq!(outcomes.len(), messages);
        for outcome in &outcomes {
            let is_sent = matches!(outcome, MessageOutcome::Sent { .. });
            assert!(!is_sent || (200..300).contains(&status));
            let is_alone = matches!(outcome, MessageOutcome::SendAlone { .. });
            assert!(!is_alone || messages > 1);
            let reason = outcome.reason();
            assert!(
                reason.len() <= 1024 && !reason.contains(char::is_control),
                "{reason:?}"
            );
        }
    }
});
