//! The SQL functions that judge attachments by the rules of [`mailroom_core::attachment`].

use pgrx::prelude::*;

use crate::pg::encoding;
use mailroom_core::{attachment, message};

fn texts(texts: Option<&Array<'_, &[u8]>>) -> Option<Vec<Option<String>>> {
    let read = |one: Option<&[u8]>| match one {
        Some(one) => encoding::to_utf8(one).map(|text| Some(text.into_owned())),
        None => Some(None),
    };
    texts.map_or(Some(Vec::new()), |texts| texts.iter().map(read).collect())
}

/// Why a mail cannot have attachments with these names, types and content ids; `None` if it can.
#[pg_extern(sql = false)]
fn _attachments_problem(
    filenames: Option<Array<&[u8]>>,
    content_types: Option<Array<&[u8]>>,
    content_ids: Option<Array<&[u8]>>,
    has_html: Option<bool>,
) -> Option<Vec<u8>> {
    let judged = || {
        let lists = (
            texts(filenames.as_ref()),
            texts(content_types.as_ref()),
            texts(content_ids.as_ref()),
        );
        let (Some(names), Some(types), Some(ids)) = lists else {
            let unread = "holds bytes that are no characters in the database's encoding";
            return Err(format!("a name, a type or a content_id {unread}"));
        };
        for (index, name) in names.iter().enumerate() {
            let place = index + 1;
            let name = name
                .as_deref()
                .ok_or_else(|| format!("attachments[{place}] has no filename"))?;
            let content_type = types.get(index).and_then(Option::as_deref);
            let content_id = ids.get(index).and_then(Option::as_deref);
            attachment::judge(name, content_type, content_id)
                .map_err(|reason| format!("attachments[{place}].{reason}"))?;
        }
        let ids: Vec<Option<&str>> = ids.iter().map(Option::as_deref).collect();
        attachment::judge_all(&ids, has_html == Some(true))
    };
    let reason = judged().err()?;
    Some(encoding::from_utf8_lossy(&reason).into_owned())
}

/// The type of an attachment: the given one, else that of the extension; null for what is no name.
#[pg_extern(sql = false)]
fn _content_type(filename: Option<&[u8]>, content_type: Option<&[u8]>) -> Option<Vec<u8>> {
    if let Some(given) = content_type {
        return Some(given.to_vec());
    }
    let filename = encoding::to_utf8(filename?)?;
    let found = attachment::judge(&filename, None, None).ok()?;
    Some(found.into_bytes())
}

/// About how many octets a mail has as it is sent, by those of its parts.
#[pg_extern(sql = false)]
fn _encoded_size(subject: Option<i64>, bodies: Option<i64>, attachments: Option<i64>) -> i64 {
    let [subject, bodies, files] = [subject, bodies, attachments]
        .map(|octets| u64::try_from(octets.unwrap_or(0)).unwrap_or(0));
    i64::try_from(message::encoded_size(subject, bodies, files)).unwrap_or(i64::MAX)
}
