//! The SQL functions for links that unsubscribe: the names of lists, signing, and reading a token back.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::errors;
use super::signing::{self, Text};
use crate::pg::encoding::{self, Element};
use crate::settings;
use mailroom_core::address::mailbox;
use mailroom_core::headers;
use mailroom_core::token::key_file::KeyFileError;
use mailroom_core::token::unsubscribe;

/// Why this is no name of a list, for a sentence that begins with it; `None` if it is one.
#[pg_extern(sql = false)]
fn _list_problem(list: Text<'_>) -> Option<Vec<u8>> {
    let problem = match encoding::to_utf8(list) {
        Some(list) => unsubscribe::check_list(&list).err()?,
        None => "holds bytes that are no characters in the database's encoding".to_owned(),
    };
    Some(encoding::from_utf8_lossy(&problem).into_owned())
}

/// The link by which a mailbox unsubscribes from a list; `None` without a base URL, or if one of the two is not valid.
#[pg_extern(sql = false)]
fn _unsubscribe_url(
    list: Option<Text<'_>>,
    mailbox: Option<Text<'_>>,
) -> Result<Option<String>, ErrorReport> {
    let Some(base) = settings::link_base_url() else {
        return Ok(None);
    };
    let read = |text: Option<Text<'_>>| encoding::to_utf8(text?).map(|text| text.into_owned());
    let (Some(list), Some(mailbox)) = (read(list), read(mailbox)) else {
        return Ok(None);
    };
    let address = mailbox::bare(&mailbox);
    let token = signing::unsubscribe_token(&list, address).map_err(without_keys)?;
    Ok(token.map(|token| format!("{base}{}?token={token}", unsubscribe::PATH)))
}

/// The error of a link that cannot be signed. Its SQLSTATE is one that a claim passes by: the mail waits, and no other one.
fn without_keys(error: KeyFileError) -> ErrorReport {
    let (_, message, hint) = errors::explain(&error.path, &error.problem);
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        message,
        function_name!(),
    )
    .set_detail("Links that unsubscribe are signed with the keys in mailroom.key_file.")
    .set_hint(hint)
}

/// Whether the headers of RFC 8058 can have this URL.
#[pg_extern(sql = false)]
fn _is_unsubscribe_url(url: Text<'_>) -> bool {
    std::str::from_utf8(url).is_ok_and(|url| headers::check_unsubscribe_url(url).is_ok())
}

/// The list and the address of a genuine token; `None` for any other, and if the encoding does not have their characters.
#[pg_extern(sql = false)]
fn _unsubscriber(token: Option<Text<'_>>) -> Result<Option<Vec<Element>>, ErrorReport> {
    // First, so that a server without keys reports that for any argument.
    let verifier = signing::verifier()?;
    let Some(who) = token.and_then(|token| verifier.unsubscriber(token)) else {
        return Ok(None);
    };
    let known = |text: &str| encoding::from_utf8(text).map(|text| Element(text.into_owned()));
    Ok([who.list, who.address]
        .iter()
        .map(|text| known(text))
        .collect())
}
