//! What can be done with a message, and with the links of an account.

use tokio_postgres::types::Type;

use super::Done;
use crate::serve::connection::{Failure, Statements};
use crate::serve::form::Form;
use crate::serve::words::number;

/// Whether a statement of one flag, for a message, did something.
async fn done(statements: &Statements<'_>, statement: &str, id: i64) -> Result<bool, Failure> {
    let row = statements.one(statement, &[(&id, Type::INT8)]).await?;
    row.flag("done")
}

/// Retries a failed message.
///
/// # Errors
/// As all that is done.
pub async fn retry(statements: &Statements<'_>, id: i64) -> Result<Done, Failure> {
    let statement = include_str!("../../../sql/page/act_retry.sql");
    Ok(match done(statements, statement, id).await? {
        true => Done::new(format!("retried message {id}"), "Retried. It is due now."),
        false => Done::nothing(
            format!("did not retry message {id}"),
            "Not retried.",
            "It has not failed and is not suppressed, has expired, or is in use by another session.",
        ),
    })
}

/// Cancels a message that waits.
///
/// # Errors
/// As all that is done.
pub async fn cancel(statements: &Statements<'_>, id: i64) -> Result<Done, Failure> {
    let statement = include_str!("../../../sql/page/act_cancel.sql");
    Ok(match done(statements, statement, id).await? {
        true => Done::new(format!("cancelled message {id}"), "Cancelled."),
        false => Done::nothing(
            format!("did not cancel message {id}"),
            "Not cancelled.",
            "It does not wait any more: it is being sent, or has ended.",
        ),
    })
}

/// Moves a message that waits to another time.
///
/// # Errors
/// As all that is done.
pub async fn reschedule(
    statements: &Statements<'_>,
    id: i64,
    form: &Form,
) -> Result<Done, Failure> {
    let Some(send_at) = form.get("send_at").filter(|text| is_moment(text)) else {
        return Ok(Done::nothing(
            format!("did not reschedule message {id}"),
            "Not rescheduled.",
            "The time has to be a date and a time of day, as 2027-04-05T10:00.",
        ));
    };
    let statement = include_str!("../../../sql/page/act_reschedule.sql");
    let parameters = [(&id as _, Type::INT8), (&send_at as _, Type::TEXT)];
    let row = statements.one(statement, &parameters).await?;
    Ok(match row.flag("done")? {
        true => Done::new(format!("rescheduled message {id}"), "Rescheduled."),
        false => Done::nothing(
            format!("did not reschedule message {id}"),
            "Not rescheduled.",
            "It does not wait any more: it is being sent, or has ended.",
        ),
    })
}

/// Schedules a copy of a message that has ended.
///
/// # Errors
/// As all that is done.
pub async fn send_again(statements: &Statements<'_>, id: i64) -> Result<Done, Failure> {
    let statement = include_str!("../../../sql/page/act_send_again.sql");
    let row = statements.one(statement, &[(&id, Type::INT8)]).await?;
    Ok(match row.maybe_number("id")? {
        Some(copy) if !row.flag("is_new")? => Done {
            to: Some(format!("messages/{copy}")),
            ..Done::new(
                format!("did not send message {id} again: {copy} is its copy"),
                format!("Message {id} was sent again seconds ago: this is its copy."),
            )
        },
        Some(copy) => Done {
            to: Some(format!("messages/{copy}")),
            ..Done::new(
                format!("sent message {id} again as {copy}"),
                format!("Message {id} is sent again: this is its copy."),
            )
        },
        None => Done::nothing(
            format!("did not send message {id} again"),
            "There is no such message.",
            "",
        ),
    })
}

/// Whether a text is what a browser sends of a field for a local time, of a year that people mean.
fn is_moment(text: &str) -> bool {
    let is_as = |form: &str| {
        form.len() == text.len()
            && form.bytes().zip(text.bytes()).all(|(form, c)| match form {
                b'0' => c.is_ascii_digit(),
                _ => c == form,
            })
    };
    let has_form = ["0000-00-00T00:00", "0000-00-00T00:00:00"]
        .into_iter()
        .any(is_as);
    has_form && text > "1970"
}

/// The action of the link that an account of this status may get.
pub fn link_for(status: &str) -> Option<&'static str> {
    match status {
        "provisioned" => Some("activation"),
        "active" => Some("password_recovery"),
        _ => None,
    }
}

/// Sends a new link to the address of an account.
///
/// # Errors
/// As all that is done.
pub async fn request_link(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let (action, address) = (form.raw("action"), form.raw("address"));
    let statement = include_str!("../../../sql/page/act_request.sql");
    let parameters = [(&action as _, Type::TEXT), (&address as _, Type::TEXT)];
    let row = statements.maybe(statement, &parameters).await?;
    Ok(match row {
        Some(_) => {
            let mut done = Done::new(
                "requested a link",
                "Requested. A mail goes out if the account may have one now.",
            );
            done.notice.detail =
                "It gets none within mailroom.request_interval of the one before, none beyond \
                 mailroom.requests_per_hour, and none if it is suspended."
                    .to_owned();
            done
        }
        None => Done::nothing("requested no link", "There is no such link.", ""),
    })
}

/// Ends the links of an account.
///
/// # Errors
/// As all that is done.
pub async fn end_links(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let Some(account) = form.number("account") else {
        return Ok(Done::nothing(
            "ended no links",
            "No links were ended.",
            "The form names no account.",
        ));
    };
    let statement = include_str!("../../../sql/page/act_revoke.sql");
    let row = statements.one(statement, &[(&account, Type::INT8)]).await?;
    let links = row.number("links")?;
    let message = match links {
        1 => "Ended 1 link.".to_owned(),
        _ => format!("Ended {} links.", number(links)),
    };
    Ok(Done::new(
        format!("ended {links} links of an account"),
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_and_a_time_of_day() {
        for (text, expected) in [
            ("2027-04-05T10:00", true),
            ("2027-04-05T10:00:30", true),
            ("2027-04-05", false),
            ("0001-01-01T00:00", false),
            ("0001-01-01T00:00 BC", false),
            ("infinity", false),
            ("now", false),
            ("", false),
        ] {
            assert_eq!(is_moment(text), expected, "{text}");
        }
    }
}
