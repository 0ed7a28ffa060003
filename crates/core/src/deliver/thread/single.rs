//! Requests of a transport that takes one message at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use super::request::{Completion, RequestFuture, RequestHandle};
use crate::deliver::events::{Event, LogEvent, RequestOutcome};
use crate::deliver::mail::Mail;
use crate::transport::delivered::{Delivered, DeliveryError};
use crate::transport::providers::MessageOutcome;
use crate::transport::single::Single;

/// Prepares the delivery of the only mail. Returns the events instead if it cannot be delivered.
pub(super) fn prepare(
    single: Arc<Single>,
    handle: RequestHandle,
    mails: &Arc<Vec<Mail>>,
) -> (Option<RequestFuture>, Vec<Event>) {
    let request = handle.request;
    let done = |outcome| Event::RequestDone {
        request,
        outcome,
        status: None,
    };
    let [mail] = mails.as_slice() else {
        // The batch was formed for the provider that the transport had before.
        let reason = "the transport takes one message at a time".to_owned();
        let outcomes = vec![MessageOutcome::SendAlone { reason }; mails.len()];
        return (None, vec![done(RequestOutcome::Completed(outcomes))]);
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
        return (None, vec![unsendable, done(RequestOutcome::Abandoned)]);
    }
    let completion = Completion::unwritten(handle, "given up before there was a connection");
    let future = deliver(single, Arc::clone(mails), completion);
    (Some(Box::pin(future)), Vec::new())
}

/// Delivers the only mail.
async fn deliver(single: Arc<Single>, mails: Arc<Vec<Mail>>, mut completion: Completion) {
    let Some(mail) = mails.first() else {
        return;
    };
    let id = mail.message.id;
    let (delivered, line) = single
        .deliver(&mail.message, SystemTime::now(), || completion.begin())
        .await;
    // Makes the deliverer the only owner, so that it need not copy the mail.
    drop(mails);
    if let Some(line) = line {
        completion.handle.log(LogEvent::Logged(line));
    }
    if let Some(event) = refused_recipients(id, &delivered) {
        completion.handle.log(event);
        completion.handle.send(Event::RecipientsRefused {
            request: completion.handle.request,
            refused: delivered.refused,
        });
    }
    let outcome = match delivered.result {
        Ok(outcome) => RequestOutcome::Completed(vec![outcome]),
        Err(DeliveryError::NoConnection(reason)) => RequestOutcome::NoConnection(reason),
        Err(DeliveryError::NotSent(reason)) => RequestOutcome::NotSent(reason),
        Err(DeliveryError::Denied(reason)) => RequestOutcome::EndpointDenied(reason),
        Err(DeliveryError::Unsendable(reason)) => {
            completion.handle.send(Event::Unsendable {
                request: completion.handle.request,
                id,
                reason,
            });
            // For a request that has no mail any more.
            RequestOutcome::Abandoned
        }
    };
    completion.complete(outcome, delivered.status);
}

/// The event for the log if the mail was sent to some of its recipients only.
fn refused_recipients(id: i64, delivered: &Delivered) -> Option<LogEvent> {
    let is_sent = matches!(delivered.result, Ok(MessageOutcome::Sent { .. }));
    let first = delivered.refused.first().filter(|_| is_sent)?;
    Some(LogEvent::RecipientsRefused {
        id,
        count: delivered.refused.len(),
        reason: first.reason.clone(),
    })
}
