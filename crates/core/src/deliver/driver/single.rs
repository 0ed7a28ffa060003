//! The requests of a transport that takes one message at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use super::request::{Landing, Sender, Sending};
use crate::deliver::events::{Event, News, Outcome};
use crate::deliver::mail::Mail;
use crate::transport::delivered::{Delivered, Failure};
use crate::transport::providers::Verdict;
use crate::transport::single::Single;

/// The delivery of this mail, to be awaited, or why there is none.
pub(super) fn prepare(
    single: Arc<Single>,
    sender: Sender,
    mails: &Arc<Vec<Mail>>,
) -> (Option<Sending>, Vec<Event>) {
    let request = sender.request;
    let ended = |outcome| Event::Answered {
        request,
        outcome,
        status: None,
    };
    let [mail] = mails.as_slice() else {
        // They were put together for the provider that the transport had before.
        let reason = "the transport takes one message at a time".to_owned();
        let apart = vec![Verdict::Apart { reason }; mails.len()];
        return (None, vec![ended(Outcome::Answered(apart))]);
    };
    let check = AssertUnwindSafe(|| single.check(&mail.message));
    let checked = catch_unwind(check)
        .unwrap_or_else(|_| Err("the message could not be checked: a bug in mailroom".to_owned()));
    if let Err(reason) = checked {
        let unsendable = Event::Unsendable {
            request,
            id: mail.message.id,
            reason,
        };
        return (None, vec![unsendable, ended(Outcome::GivenUp)]);
    }
    let landing = Landing::waiting(sender, "given up before there was a connection");
    let sending = deliver(single, Arc::clone(mails), landing);
    (Some(Box::pin(sending)), Vec::new())
}

/// Delivers the first of these mails, the only one.
async fn deliver(single: Arc<Single>, mails: Arc<Vec<Mail>>, mut landing: Landing) {
    let Some(mail) = mails.first() else {
        return;
    };
    let id = mail.message.id;
    let (delivered, line) = single
        .deliver(&mail.message, SystemTime::now(), || landing.begin())
        .await;
    // So that the deliverer need not copy it.
    drop(mails);
    if let Some(line) = line {
        landing.sender.tell(News::Logged(line));
    }
    if let Some(news) = left_out(id, &delivered) {
        landing.sender.tell(news);
        landing.sender.say(Event::RecipientsRefused {
            request: landing.sender.request,
            refused: delivered.refused,
        });
    }
    let outcome = match delivered.result {
        Ok(verdict) => Outcome::Answered(vec![verdict]),
        Err(Failure::Unreached(reason)) => Outcome::Unreached(reason),
        Err(Failure::Denied(reason)) => Outcome::Denied(reason),
        Err(Failure::Unsendable(reason)) => {
            landing.sender.say(Event::Unsendable {
                request: landing.sender.request,
                id,
                reason,
            });
            // Of a request without mails.
            Outcome::GivenUp
        }
    };
    landing.land(outcome, delivered.status);
}

/// For the log, if the mail was sent without some of its recipients.
fn left_out(id: i64, delivered: &Delivered) -> Option<News> {
    let is_sent = matches!(delivered.result, Ok(Verdict::Sent { .. }));
    let first = delivered.refused.first().filter(|_| is_sent)?;
    Some(News::RecipientsRefused {
        id,
        count: delivered.refused.len(),
        reason: first.reason.clone(),
    })
}
