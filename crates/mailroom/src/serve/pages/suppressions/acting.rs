//! Suppressing an address, and lifting that.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::super::{Done, refusal};
use super::{reasons, rows, scope};
use crate::serve::connection::{Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::View;
use crate::serve::words::number;

/// What is to be suppressed, as it was typed.
pub struct Given<'a> {
    address: &'a str,
    list: &'a str,
    until: &'a str,
}

impl<'a> Given<'a> {
    pub fn of(form: &'a Form) -> Self {
        Self {
            address: form.raw("address").trim(),
            // That of a cursor is not one that was typed.
            list: match form.get("at") {
                None => form.raw("list").trim(),
                Some(_) => "",
            },
            until: form.raw("until").trim(),
        }
    }

    /// The page whose form holds it.
    fn page(&self) -> String {
        let all = query(&[
            ("address", self.address),
            ("list", self.list),
            ("until", self.until),
        ]);
        // What is much too long is not worth a query that a proxy refuses.
        match all.len() {
            ..2_000 => format!("suppressions{all}"),
            _ => "suppressions".to_owned(),
        }
    }
}

/// The form.
pub fn add(view: &View<'_>, given: &Given<'_>) -> Markup {
    let fields = html! {
        div class="field wide" {
            label for="f-add" { "Address to suppress" }
            // A field of type email refuses local parts that are not ASCII.
            input id="f-add" type="text" inputmode="email" autocomplete="off" name="address" value=(given.address) required spellcheck="false";
        }
        div class="field" {
            label for="f-list" { "List (empty: all mail)" }
            input id="f-list" name="list" value=(given.list);
        }
        div class="field" {
            label for="f-until" { "Until (empty: for ever)" }
            input id="f-until" type="date" name="until" value=(given.until);
        }
        button { "Suppress" }
    };
    html! {
        section class="panel" {
            header { h2 { "Suppress an address" } }
            // Back to the list: this page may be one whose form holds what was typed before.
            div class="body" { (view.form_of(("filters", "suppressions"), "suppressions/suppress", &[], &fields)) }
        }
    }
}

/// Suppresses an address.
///
/// # Errors
/// As all that is done.
pub async fn suppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let given = Given::of(form);
    statements.all("SAVEPOINT given", &[]).await?;
    match given.suppress(statements).await {
        // What was typed is not valid, and is shown again.
        Err(Failure::Statement(statement)) if statement.sqlstate.starts_with("22") => {
            statements.all("ROLLBACK TO SAVEPOINT given", &[]).await?;
            Ok(Done {
                notice: refusal(&statement),
                to: Some(given.page()),
                ..Done::new("suppressed no address", "")
            })
        }
        done => done,
    }
}

/// Since when an address is suppressed by hand, and until when; empty: no end.
struct ByHand {
    since: String,
    until: String,
}

impl Given<'_> {
    async fn suppress(&self, statements: &Statements<'_>) -> Result<Done, Failure> {
        let before = self.by_hand(statements).await?;
        let until = Some(self.until).filter(|until| !until.is_empty());
        let statement = include_str!("../../../../sql/page/act_suppress.sql");
        let parameters = [
            (&self.address as _, Type::TEXT),
            (&self.list as _, Type::TEXT),
            (&until as _, Type::TEXT),
        ];
        let row = statements.one(statement, &parameters).await?;
        if row.maybe("done")?.is_none() {
            return Ok(Done {
                to: Some(self.page()),
                ..Done::nothing(
                    "suppressed no address",
                    format!(
                        "Not suppressed: {} has passed.",
                        day_and_time(&row.text("until")?)
                    ),
                    "Pass a later end, or none.",
                )
            });
        }
        let now = self.by_hand(statements).await?;
        let done = |message: String| Done::new("suppressed an address", message);
        let of = scope(self.list, false);
        Ok(match (before, now) {
            (_, None) => done("Suppressed.".to_owned()),
            (None, Some(now)) => done(format!("Suppressed for {}: {}.", named(&of), now.until())),
            (Some(before), Some(now)) => {
                let mut done = done(format!(
                    "It was suppressed for {} before, since {}. Now: {}.",
                    named(&of),
                    day_and_time(&now.since),
                    now.until()
                ));
                if before.until != now.until {
                    done.notice.detail = format!("Before: {}.", before.until());
                } else if now.until != row.text("until")? {
                    done.notice.detail =
                        "The end has not changed, because an earlier one does not count."
                            .to_owned();
                    done.notice.hint =
                        "Lift the suppression first to have it end sooner.".to_owned();
                }
                done
            }
        })
    }

    /// What holds of it; nothing to a role that may suppress, but not see it.
    async fn by_hand(&self, statements: &Statements<'_>) -> Result<Option<ByHand>, Failure> {
        statements.all("SAVEPOINT seen", &[]).await?;
        let rows = match rows(statements, Some(self.address), (None, "", ""), i32::MAX).await {
            Err(Failure::Statement(statement)) if statement.sqlstate == "42501" => {
                statements.all("ROLLBACK TO SAVEPOINT seen", &[]).await?;
                return Ok(None);
            }
            rows => rows?,
        };
        for row in &rows {
            if row.text("list")? != self.list {
                continue;
            }
            let mut all = reasons(row)?.into_iter();
            let found = all.find(|reason| reason.name == "manual" && !reason.has_ended);
            return Ok(found.map(|reason| ByHand {
                since: reason.since,
                until: reason.until,
            }));
        }
        Ok(None)
    }
}

impl ByHand {
    fn until(&self) -> String {
        match self.until.as_str() {
            "" => "no end".to_owned(),
            until => format!("until {}", day_and_time(until)),
        }
    }
}

/// A time of the database as text: `2027-01-01 00:00`.
fn day_and_time(iso: &str) -> String {
    match iso.split_once('T') {
        Some((day, rest)) => format!("{day} {}", rest.get(..5).unwrap_or(rest)),
        None => iso.to_owned(),
    }
}

/// What is suppressed, within a sentence.
fn named(scope: &str) -> String {
    match scope {
        "all mail" | "all but links" => scope.to_owned(),
        list => format!("the list “{list}”"),
    }
}

/// Lifts a suppression.
///
/// # Errors
/// As all that is done.
pub async fn unsuppress(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let (address, list, reasons) = (form.raw("address"), form.raw("list"), form.get("reasons"));
    let statement = include_str!("../../../../sql/page/act_unsuppress.sql");
    let parameters = [
        (&address as _, Type::TEXT),
        (&list as _, Type::TEXT),
        (&reasons as _, Type::TEXT),
    ];
    let row = statements.one(statement, &parameters).await?;
    let reasons = row.list("reasons")?.join(", ");
    Ok(match row.maybe("done")?.as_deref() {
        None if reasons.is_empty() => Done::nothing(
            "lifted no suppression",
            "It is not suppressed any more.",
            "",
        ),
        None => Done::nothing(
            "lifted no suppression",
            format!("Not lifted: the reasons are others by now ({reasons})."),
            "Look at them, and lift it again if it should be.",
        ),
        Some("false") => Done::nothing("lifted no suppression", "It was not suppressed.", ""),
        Some(_) => {
            let of = match list.is_empty() {
                true => "all mail".to_owned(),
                false => format!("the list “{list}”"),
            };
            let lifted = match reasons.is_empty() {
                true => format!("What had ended for {of} is deleted."),
                false => format!("Lifted for {of} ({reasons})."),
            };
            let still = row.list("still")?;
            let rest = remaining(&still, row.flag("all_but_links")?, list.is_empty());
            Done::new("lifted a suppression", format!("{lifted} {rest}"))
        }
    })
}

/// What of the mail to an address is suppressed still.
fn remaining(still: &[String], all_but_links: bool, was_all: bool) -> String {
    if still.iter().any(String::is_empty) {
        return match all_but_links {
            true => "All mail to it but links is still suppressed.".to_owned(),
            false => "All mail to it is still suppressed.".to_owned(),
        };
    }
    match still {
        [] if was_all => "Mail to it goes out again.".to_owned(),
        [] => "Mail of that list to it goes out again.".to_owned(),
        [list] => format!("Mail of the list “{list}” to it is still suppressed."),
        [list, rest @ ..] => format!(
            "Mail of the list “{list}” and {} more to it is still suppressed.",
            number(i64::try_from(rest.len()).unwrap_or(0))
        ),
    }
}
