//! Fuzzes reports of delivery that come by mail: `mailroom_report` takes what is read, and not as proven.

#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use mailroom_core::events::{EventType, dsn, report};
use serde_json::Value;

fuzz_target!(|mail: &[u8]| {
    let Ok(events) = dsn::read(mail) else {
        return;
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_767_323_045);
    let count = events.len();
    let written = Value::from(events).to_string();
    // jsonb has no such character.
    assert!(!written.contains("\\u0000"), "{written}");
    let taken = report::read("relay", &written, now);
    let taken = taken.unwrap_or_else(|refusal| panic!("{refusal}: {written}"));
    assert_eq!(taken.len(), count);
    for one in taken {
        assert!(!one.is_proven);
        let event = one.event;
        assert!(event.message_id.is_some() && event.recipient.is_some());
        assert!(!event.is_permanent || event.event_type == EventType::Bounced);
        assert!((UNIX_EPOCH..=now).contains(&event.occurred_at));
    }
});
