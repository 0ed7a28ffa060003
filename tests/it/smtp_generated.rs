//! A thousand generated messages through Debian's Postfix: two third-party parsers must read what was scheduled.
//!
//! needs: counterparts

use std::collections::HashMap;

use crate::cluster::number;
use crate::counterparts::mails::{Arrived, read_with_mailparser, scheduled};
use crate::counterparts::postfix::Postfix;
use crate::post::Post;

const MESSAGES: i64 = 1000;

#[test]
fn generated_messages_are_equal_or_refused_when_they_are_scheduled() {
    let Some(postfix) = Postfix::shared() else {
        return;
    };
    let mut post = Post::start_with(
        &[postfix.transport(
            "relay",
            "concurrency = 16\nallow_from = [\"*@bücher.example\"]",
        )],
        &[],
    );
    post.client
        .batch_execute(include_str!("../smtp_generated/messages.sql"))
        .unwrap();
    let refused = number(&mut post.client, "SELECT count(*) FROM refused");
    let taken = MESSAGES - refused;
    // The only reasons: a control character in the subject, a subject that is too long, an empty text.
    let others = "SELECT coalesce(string_agg(DISTINCT reason, '; '), '') FROM refused WHERE reason !~ \
         'subject contains the control character|subject has [0-9]+ octets|body_text is empty'";
    let others: String = post.client.query_one(others, &[]).unwrap().get(0);
    assert_eq!(others, "");
    let reasons = "SELECT count(DISTINCT regexp_replace(reason, '[0-9]+', '')) FROM refused";
    assert!(number(&mut post.client, reasons) >= 2);
    assert!(taken > 900, "{refused} were refused");
    post.wait_until_ended(taken);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), taken);

    let sent = scheduled(&mut post.client, "state = 'sent'");
    let by_python = postfix.mails();
    let mut copies: HashMap<&str, Vec<&Arrived>> = HashMap::new();
    for copy in &by_python {
        copies.entry(&copy.id).or_default().push(copy);
    }
    let by_mailparser = read_with_mailparser(&postfix.mailbox());
    let by_mailparser: HashMap<&str, &Arrived> = by_mailparser
        .iter()
        .map(|copy| (copy.id.as_str(), copy))
        .collect();
    for mail in &sent {
        mail.must_be(&copies[mail.id.as_str()], &[]);
        mail.must_equal(by_mailparser[mail.id.as_str()]);
    }
}
