//! The calls, which are the same for each driver.

use serde_json::{Value, json};

/// A statement, its parameters, and the text of the first column of the result, or the SQLSTATE of the error.
pub type Call = (&'static str, Value, &'static str);

const ID: &str = "0197c5d0-0000-7000-8000-000000000001";

/// What a webhook of Postmark posts, with the password of [`TRANSPORTS`].
const POSTED: &str = r#"{"RecordType": "Delivery", "MessageID": "a", "Recipient": "c@example.com", "DeliveredAt": "2026-01-01T00:00:00Z",
    "Details": "250 \u00e9 \\ '", "Metadata": {"message_id": "0197c5d0-0000-7000-8000-000000000001", "outbox_id": "2"}}"#;

/// `mailroom:hunter2`.
const AUTHORIZATION: &str = "Basic bWFpbHJvb206aHVudGVyMg==";

pub const TRANSPORTS: &str = "[transports.main]\nprovider = \"postmark\"\nfrom = \"shop@example.com\"\n\
    api_key = \"key\"\nevent_secret = \"mailroom:hunter2\"\n";

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

const LATER: &str = "2040-01-01T00:00:00+00:00";

pub fn calls() -> Vec<Call> {
    let secret = json!({"bytes": "07".repeat(32)});
    vec![
        (
            "SELECT mailroom_address_key($1)",
            json!([" Ada@Example.com "]),
            "ada@example.com",
        ),
        // Scheduling.
        (
            "SELECT mailroom_send($1, $2, $3)::text",
            json!(["a@example.com, b@example.com", "Subject", "Text"]),
            "1",
        ),
        (
            "SELECT mailroom_send($1, subject => $2, body_text => $3, cc => $4, data => $5, send_at => $6, priority => $7, \
             item_key => $8, max_attempts => $9, message_id => $10)::text",
            json!(["c@example.com", "Subject", "Text", null, {"json": {"n": 1}}, {"time": LATER}, -5, "key", 3, {"uuid": ID}]),
            "2",
        ),
        (
            "SELECT mailroom_send($1, $2, $3, message_id => $4, data => $5)::text",
            json!(["c@example.com", "Subject", "Text", {"uuid": ID}, {"json": {"n": 1}}]),
            "2",
        ),
        (
            "SELECT id::text FROM mailroom_send_many($1)",
            json!([{"json": [{"recipients": ["d@example.com"], "subject": "S", "body_text": "T", "group_key": "g", "priority": 9}]}]),
            "3",
        ),
        (
            "SELECT mailroom_reschedule($1, $2)::text",
            json!([2, {"time": "2041-01-01T00:00:00+00:00"}]),
            "true",
        ),
        (
            "SELECT mailroom_reschedule_item($1, $2)::text",
            json!(["key", {"time": LATER}]),
            "true",
        ),
        (
            "SELECT mailroom_cancel_item($1)::text",
            json!(["key"]),
            "true",
        ),
        ("SELECT mailroom_cancel($1)::text", json!([2]), "false"),
        (
            "SELECT (mailroom_next_due() <= now())::text",
            json!([]),
            "true",
        ),
        // Transports.
        (
            "INSERT INTO routes (position, kind_pattern, transport) VALUES ($1, $2, $3) RETURNING transport::text",
            json!([1, "digest%", "bulk"]),
            "bulk",
        ),
        (
            "SELECT mailroom_send($1, $2, $3, kind => $4, transport => $5)::text",
            json!(["e@example.com", "Subject", "Text", "digest", null]),
            "4",
        ),
        (
            "SELECT (mailroom_next_due($1) <= now())::text",
            json!([["bulk"]]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2, transports => $3)",
            json!([1, "me", ["bulk", "other"]]),
            "4",
        ),
        (
            "SELECT mailroom_release($1, claimant => $2)::text",
            json!([4, "me"]),
            "true",
        ),
        (
            "SELECT mailroom_reroute($1, $2)::text",
            json!(["bulk", ""]),
            "1",
        ),
        ("SELECT mailroom_cancel($1)::text", json!([4]), "true"),
        // Claiming and settling.
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_extend($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT mailroom_extend_many($1, claimant => $2)::text",
            json!([[1, 2], "me"]),
            "{1}",
        ),
        (
            "SELECT mailroom_release($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_release_many($1, $2)::text",
            json!([[1], "me"]),
            "{1}",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_error($1, $2, permanent => $3, response_code => $4, claimant => $5)::text",
            json!([1, "no such mailbox", true, 550, "me"]),
            "true",
        ),
        ("SELECT mailroom_send_again($1)::text", json!([99]), ""),
        ("SELECT mailroom_retry($1)::text", json!([1]), "true"),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_error_many($1, $2, claimant => $3, failed_attempts => $4::integer[])::text",
            json!([[1], ["busy"], "me", [1]]),
            "{1}",
        ),
        (
            "UPDATE outbox SET state = 'error', last_error = 'busy' WHERE id = $1 RETURNING state::text",
            json!([1]),
            "error",
        ),
        (
            "SELECT mailroom_retry_failed(kind => $1, batch_limit => $2)::text",
            json!(["message", 10]),
            "1",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_sent($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim_group(claimant => $1, group_key => $2)",
            json!(["me", "g"]),
            "3",
        ),
        (
            "SELECT mailroom_mark_sent_many($1, $2, $3)::text",
            json!([[3], ["provider"], "me"]),
            "{3}",
        ),
        (
            "SELECT count(*)::text FROM mailroom_problems() WHERE problem = 'worker_errors'",
            json!([]),
            "0",
        ),
        // Before there are requests, which the worker answers when it comes to them.
        (
            "SELECT waiting::text FROM mailroom_status()",
            json!([]),
            "0",
        ),
        // Files.
        (
            "SELECT mailroom_add_file($1)::text",
            json!([{"bytes": "00ff5c"}]),
            "1",
        ),
        (
            "SELECT mailroom_send($1, $2, $3, attachments => $4)::text",
            json!(["f@example.com", "Subject", "Text", {"json": [{"filename": "a.bin", "file_id": 1}]}]),
            "5",
        ),
        (
            "SELECT encode(content, 'hex') FROM mailroom_attachments($1)",
            json!([5]),
            "00ff5c",
        ),
        ("SELECT mailroom_cancel($1)::text", json!([5]), "true"),
        // Events: the bytes of a body as they came, with a backslash and letters beyond ASCII.
        (
            "SELECT outcome::text FROM mailroom_receive($1, $2, $3)",
            json!(["main", {"json": {"Authorization": AUTHORIZATION}}, {"bytes": hex(POSTED)}]),
            "recorded",
        ),
        (
            "SELECT mailroom_report($1, $2)::text",
            json!(["main", {"json": [{"type": "delivered", "event_id": "1", "message_id": ID}]}]),
            "1",
        ),
        (
            "SELECT mailroom_suppress_many($1, $2, $3::suppression_reason)::text",
            json!([["S@example.com", "é@example.com"], "news", "unsubscribed"]),
            "2",
        ),
        (
            "SELECT mailroom_suppress($1, $2, until => $3::timestamptz)::text",
            json!(["s@example.com", "", "2099-01-01"]),
            "true",
        ),
        (
            "SELECT mailroom_suppressed($1, $2)::text",
            json!(["é@example.com", "news"]),
            "true",
        ),
        (
            "SELECT mailroom_unsuppress($1)::text",
            json!(["s@EXAMPLE.com"]),
            "true",
        ),
        (
            "SELECT (mailroom_unsubscribe_url($1, $2) LIKE 'https://%/unsubscribe?token=%')::text",
            json!(["s@example.com", "news"]),
            "true",
        ),
        (
            "SELECT mailroom_unsubscribe($1)::text",
            json!(["AAAA"]),
            "false",
        ),
        (
            "SELECT detail FROM delivery_events WHERE detail <> $1",
            json!([""]),
            "250 é \\ '",
        ),
        // Accounts and links.
        (
            "INSERT INTO accounts (email, login) VALUES ($1, $2) RETURNING id::text",
            json!(["ada@example.com", "ada"]),
            "1",
        ),
        ("SELECT mailroom_collect($1)::text", json!([10]), "1"),
        (
            "SELECT mailroom_request_activation($1)::text",
            json!(["ada@example.com"]),
            "",
        ),
        (
            "SELECT mailroom_request_recovery($1)::text",
            json!(["ada@example.com"]),
            "",
        ),
        (
            "SELECT mailroom_answer_requests($1)::text",
            json!([10]),
            "0",
        ),
        (
            "INSERT INTO accounts (email, login) VALUES ($1, $2) RETURNING id::text",
            json!(["bob@example.com", "bob"]),
            "2",
        ),
        ("SELECT login FROM mailroom_dequeue($1)", json!([1]), "bob"),
        (
            "SELECT (mailroom_dequeue_line($1) IS NULL)::text",
            json!([10]),
            "true",
        ),
        (
            "SELECT outcome FROM mailroom_peek($1)",
            json!(["A".repeat(86)]),
            "invalid",
        ),
        (
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            json!(["A".repeat(86), "04711"]),
            "invalid",
        ),
        ("SELECT mailroom_revoke($1)::text", json!([1]), "1"),
        (
            "SELECT length(mailroom_sign($1::text::token_action, $2, $3))::text",
            json!(["password_recovery", secret, "04711"]),
            "86",
        ),
        (
            "SELECT mailroom_verify($1, $2::text::token_action, $3)::text",
            json!(["A".repeat(86), "password_recovery", "04711"]),
            "false",
        ),
        // Other functions.
        (
            "SELECT subject FROM mailroom_preview($1, $2)",
            json!(["password_changed", {"json": {"login": "ada"}}]),
            "Your password was changed",
        ),
        (
            "SELECT (library = sql)::text FROM mailroom_version()",
            json!([]),
            "true",
        ),
        ("SELECT mailroom_pause()::text", json!([]), "true"),
        ("SELECT mailroom_resume()::text", json!([]), "true"),
        (
            "SELECT (mailroom_wake_worker() IS NOT NULL)::text",
            json!([]),
            "true",
        ),
        (
            "SELECT purged::text FROM mailroom_purge($1)",
            json!([10]),
            "0",
        ),
        (
            "SELECT mailroom_attach($1, email => $2, login => $3, active => $4)::text",
            json!(["people", "mail", "nick", "live"]),
            "1",
        ),
        ("SELECT mailroom_detach($1)::text", json!(["people"]), "1"),
        (
            "SELECT (mailroom_rotate_key() > 1)::text",
            json!([]),
            "true",
        ),
        // Errors are distinguished by their SQLSTATE.
        (
            "SELECT mailroom_send($1, $2, $3)",
            json!(["nobody", "S", "T"]),
            "22P02",
        ),
        (
            "SELECT mailroom_reschedule($1, $2)",
            json!([1, null]),
            "22023",
        ),
        ("SELECT mailroom_retry_failed()", json!([]), "22004"),
    ]
}
