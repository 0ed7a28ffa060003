//! Fuzzes the replies of an SMTP server, from the greeting to the reply to the message: it is sent only after a reply that
//! accepts its content, and what reaches a log is one line. The input is all that the server sends.

#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use mailroom_core::message::Message;
use mailroom_core::transport::config::{self, Method};
use mailroom_core::transport::providers::MessageOutcome;
use mailroom_core::transport::single::Single;
use tokio::runtime::{Builder, Runtime};

const TRANSPORTS: &str = r#"
[transports.relay]
provider = "smtp"
host = "127.0.0.1"
port = 1
tls = "none"
allowed_networks = ["127.0.0.0/8"]
from = "Shop <shop@example.com>"
username = "shop"
password = "example"
[transports.open]
provider = "smtp"
host = "127.0.0.1"
port = 1
tls = "none"
allowed_networks = ["127.0.0.0/8"]
from = "Shop <shop@example.com>"
"#;

static RELAYS: LazyLock<Vec<Arc<Single>>> = LazyLock::new(|| {
    let all = config::parse(TRANSPORTS, Path::new("/nonexistent"));
    let all = all.unwrap_or_else(|error| panic!("{error}")).into_iter();
    all.map(|transport| match transport.method {
        Method::Single(single) => single,
        Method::Http { .. } => panic!("{} is no relay", transport.name),
    })
    .collect()
});
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
});

fn message(recipients: &[&str]) -> Message {
    Message {
        message_id: "0f8fad5b-d9cb-469f-a165-70867728950e".to_owned(),
        recipients: recipients
            .iter()
            .map(|&address| address.to_owned())
            .collect(),
        subject: "Hello".to_owned(),
        body_text: Some("Hello".to_owned()),
        ..Message::default()
    }
}

static MESSAGES: LazyLock<[Message; 2]> = LazyLock::new(|| {
    [
        message(&["ada@example.com"]),
        message(&["ada@example.com", "alan@example.com", "grace@example.com"]),
    ]
});

fuzz_target!(|replies: &[u8]| {
    for relay in RELAYS.iter() {
        let Single::Smtp(relay) = &**relay else {
            return;
        };
        for message in MESSAGES.iter() {
            let sending = relay.send_to_bytes(replies.to_vec(), message);
            let delivered = RUNTIME.block_on(sending);
            if matches!(delivered.outcome, MessageOutcome::Sent { .. }) {
                assert!(replies.windows(3).any(|code| code == b"354"));
                assert!(delivered.refused.len() < message.recipients.len());
            }
            for refused in &delivered.refused {
                assert!(message.recipients.contains(&refused.recipient));
                assert!(!refused.reason.contains(char::is_control));
            }
            assert!(!delivered.outcome.reason().contains(char::is_control));
        }
    }
});
