//! Requests of a transport that takes one message at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use super::request::{Completion, RequestFuture, RequestHandle};
use crate::deliver::events::{LogEvent, RequestResult};
use crate::deliver::mail::Mail;
use crate::transport::delivered::Delivered;
use crate::transport::providers::MessageOutcome;
use crate::transport::single::Single;

/// Prepares the delivery of the only mail. If it cannot be delivered, the request has ended.
pub(super) fn prepare(
    single: Arc<Single>,
    handle: RequestHandle,
    mails: &Arc<Vec<Mail>>,
) -> Option<RequestFuture> {
    let completion = Completion::unwritten(handle, mails.len());
    let outcome = match mails.as_slice() {
        [mail] => match check(&single, mail) {
            Ok(()) => {
                let future = deliver(single, Arc::clone(mails), completion);
                return Some(Box::pin(future));
            }
            Err(reason) => MessageOutcome::Unsendable { reason },
        },
        _ => {
            // The batch was formed for the provider that the transport had before.
            let reason = "the transport takes one message at a time".to_owned();
            MessageOutcome::SendAlone { reason }
        }
    };
    completion.complete(RequestResult {
        outcomes: vec![outcome; mails.len()],
        ..RequestResult::default()
    });
    None
}

fn check(single: &Single, mail: &Mail) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| single.check(&mail.message)))
        .unwrap_or_else(|_| Err("the message could not be checked: a bug in mailroom".to_owned()))
}

/// Delivers the only mail.
async fn deliver(single: Arc<Single>, mails: Arc<Vec<Mail>>, mut completion: Completion) {
    let Some(mail) = mails.first() else {
        return;
    };
    let id = mail.message.id;
    let (delivered, line) = single
        .deliver(&mail.message, SystemTime::now(), &mut |sent| {
            completion.settle(sent.cloned().map_or_else(RequestResult::default, result));
        })
        .await;
    // Makes the deliverer the only owner, so that it need not copy the mail.
    drop(mails);
    if let Some(line) = line {
        completion.handle.log(LogEvent::Logged(line));
    }
    if let Some(first) = delivered.refused.first()
        && matches!(delivered.outcome, MessageOutcome::Sent { .. })
    {
        completion.handle.log(LogEvent::RecipientsRefused {
            id,
            count: delivered.refused.len(),
            reason: first.reason.clone(),
        });
    }
    completion.complete(result(delivered));
}

fn result(delivered: Delivered) -> RequestResult {
    RequestResult {
        outcomes: vec![delivered.outcome],
        status: delivered.status,
        refused: delivered.refused,
    }
}
