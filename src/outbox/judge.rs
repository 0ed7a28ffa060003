//! The SQL functions that read and judge the message of an application by the rules of [`mailroom_core::scheduling`].
//!
//! Bodies are passed as they are: a text that a statement has in memory is not copied, and only its size is read. In an
//! encoding other than UTF-8 a body is converted once to see whether it can be.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::accounts::rules;
use crate::pg::encoding::{self, Element};
use crate::settings;
use mailroom_core::address::{self, mailbox};
use mailroom_core::scheduling::{Body, Data, Draft, Limits, Refusal, Text, check};

/// The mailboxes of a list as in a mail header (RFC 5322 section 3.4), each as it is written.
#[pg_extern(sql = false)]
fn _address_list(list: Option<&[u8]>) -> Vec<Element> {
    let elements = mailbox::elements(list.unwrap_or_default());
    elements
        .into_iter()
        .map(|one| Element(one.to_vec()))
        .collect()
}

/// The addresses of these mailboxes, without names; an element that is no mailbox is returned as it is.
#[pg_extern(sql = false)]
fn _bare_addresses(mailboxes: Option<Array<&[u8]>>) -> Vec<Element> {
    let bare = |one: &[u8]| match encoding::to_utf8(one) {
        // The same bytes: an address is not changed.
        Some(read) => {
            encoding::from_utf8(mailbox::bare(&read)).map(|bare| Element(bare.into_owned()))
        }
        None => Some(Element(one.to_vec())),
    };
    let mailboxes = mailboxes.iter().flat_map(Array::iter).flatten();
    mailboxes.filter_map(bare).collect()
}

/// The key of the address of a mailbox; `None` if it has none.
fn key_of_mailbox(mailbox: &[u8]) -> Option<Vec<u8>> {
    rules::key(mailbox::bare(&encoding::to_utf8(mailbox)?))
}

/// The keys by which mail to these mailboxes is found. What is no mailbox has none: it may be larger than what an index
/// can hold.
#[pg_extern(sql = false)]
fn _search_keys(mailboxes: Option<Array<&[u8]>>) -> Vec<Element> {
    let mailboxes = mailboxes.iter().flat_map(Array::iter).flatten();
    mailboxes.filter_map(key_of_mailbox).map(Element).collect()
}

/// Those of these mailboxes whose addresses have none of these keys.
#[pg_extern(sql = false)]
fn _without(mailboxes: Option<Array<&[u8]>>, keys: Option<Array<&[u8]>>) -> Vec<Element> {
    let keys: Vec<&[u8]> = keys.iter().flat_map(Array::iter).flatten().collect();
    let mailboxes = mailboxes.iter().flat_map(Array::iter).flatten();
    mailboxes
        .filter(|one| key_of_mailbox(one).is_none_or(|key| !keys.contains(&key.as_slice())))
        .map(|one| Element(one.to_vec()))
        .collect()
}

/// Whether one of these patterns allows the address of this mailbox.
#[pg_extern(sql = false)]
fn _allows_sender(patterns: Option<Array<&[u8]>>, mailbox: Option<&[u8]>) -> bool {
    let Some(mailbox) = mailbox.and_then(encoding::to_utf8) else {
        return false;
    };
    let from = mailbox::bare(&mailbox);
    let patterns = patterns.iter().flat_map(Array::iter).flatten();
    patterns
        .filter_map(encoding::to_utf8)
        .any(|pattern| address::is_allowed(&pattern, from))
}

fn text(text: &[u8]) -> Text<'_> {
    encoding::to_utf8(text).map_or(Text::Unread, Text::Read)
}

fn list<'a, 'b: 'a>(list: Option<&'a Array<'_, &'b [u8]>>) -> Vec<Option<Text<'a>>> {
    list.map(|list| list.iter().map(|one| one.map(text)).collect())
        .unwrap_or_default()
}

fn body(body: Option<&[u8]>) -> Option<Body> {
    body.map(|body| Body {
        octets: body.len() as u64,
        is_readable: encoding::is_utf8() || encoding::to_utf8(body).is_some(),
    })
}

/// Why a message cannot be scheduled: SQLSTATE, reason and remedy; `None` if it can. `now` is the time of the transaction.
#[pg_extern(sql = false)]
#[allow(
    clippy::too_many_arguments,
    reason = "the fields of a message, as SQL passes them"
)]
fn _message_problem(
    recipients: Option<Array<&[u8]>>,
    cc: Option<Array<&[u8]>>,
    bcc: Option<Array<&[u8]>>,
    reply_to: Option<Array<&[u8]>>,
    subject: Option<&[u8]>,
    body_text: Option<&[u8]>,
    body_html: Option<&[u8]>,
    kind: Option<&[u8]>,
    data_type: Option<&str>,
    data_octets: Option<i32>,
    send_at: Option<TimestampWithTimeZone>,
    expires_at: Option<TimestampWithTimeZone>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    item_key: Option<&[u8]>,
    group_key: Option<&[u8]>,
    from_address: Option<&[u8]>,
    headers: Option<&[u8]>,
    unsubscribe_url: Option<&[u8]>,
    mailing_list: Option<&[u8]>,
    now: TimestampWithTimeZone,
) -> Option<Vec<Element>> {
    let draft = Draft {
        lists: [
            list(recipients.as_ref()),
            list(cc.as_ref()),
            list(bcc.as_ref()),
            list(reply_to.as_ref()),
        ],
        from_address: from_address.map(text),
        headers: headers.map(text),
        unsubscribe_url: unsubscribe_url.map(text),
        list: mailing_list.map(text),
        subject: subject.map(text),
        body_text: body(body_text),
        body_html: body(body_html),
        kind: kind.map(text),
        item_key: item_key.map(text),
        group_key: group_key.map(text),
        data: Data {
            json_type: data_type.unwrap_or("null"),
            octets: u64::try_from(data_octets.unwrap_or(0)).unwrap_or(0),
        },
        send_at: send_at.map(TimestampWithTimeZone::into_inner),
        expires_at: expires_at.map(TimestampWithTimeZone::into_inner),
        priority,
        max_attempts,
    };
    let limits = Limits {
        message_size: settings::max_message_size(),
        now: now.into_inner(),
    };
    let refusal = check(&draft, limits).err()?;
    let (code, remedy) = match refusal {
        Refusal::Address(_) => (
            "22P02",
            "An address is local@domain, with or without a name, as in Ann Lee <ann@example.com> or \"Lee, Ann\" <ann@example.com>; several are separated by commas.",
        ),
        Refusal::Value(_) => (
            "22023",
            "The reference describes the arguments of mailroom_send.",
        ),
    };
    let told = |text| Element(encoding::from_utf8_lossy(text).into_owned());
    Some([code, refusal.reason(), remedy].map(told).into())
}
