//! Retrying many: the question with the count, and the act.

use hyper::StatusCode;
use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::super::{Done, Shown, refusal};
use super::{SPANS, since};
use crate::serve::cells::Cells;
use crate::serve::connection::{Access, Clock, Failure, Statements};
use crate::serve::form::{Form, query};
use crate::serve::layout::{Page, Section, View};
use crate::serve::response;
use crate::serve::sessions::Notice;
use crate::serve::words::{maybe_time, number};

/// How many mails are retried at a time.
const MOST: i64 = 10_000;

/// The conditions of a retry of many; `None`: any.
#[derive(Default)]
pub struct Conditions {
    kind: Option<String>,
    /// Empty for mail that clients deliver.
    transport: Option<String>,
    outcome: Option<String>,
    code: Option<i32>,
}

impl Conditions {
    /// Those that the mail of a group has in common.
    pub fn of_group(group: &Cells) -> Result<Self, Failure> {
        let outcome = group.maybe("outcome")?;
        Ok(Self {
            kind: group.maybe("kind")?,
            // Of mail that ended without an attempt, the transport is not that of an attempt.
            transport: group.maybe("transport")?.filter(|_| outcome.is_some()),
            outcome,
            code: group
                .maybe_number("response_code")?
                .and_then(|code| i32::try_from(code).ok()),
        })
    }

    /// Those of a query or a form.
    ///
    /// # Errors
    /// What cannot be understood of them: without it, other mail would be retried than is meant.
    fn of_form(form: &Form) -> Result<Self, Notice> {
        let text = |name: &str| match (form.get(name), form.raw(name).trim()) {
            (None, "") => Ok(None),
            (None, _) => Err(refused(&format!("The {name} is not valid."))),
            (Some(value), _) => Ok(Some(value.to_owned())),
        };
        let code = text("code")?.map(|code| {
            let parsed = code.parse();
            parsed.map_err(|_| refused(&format!("The code “{code}” is not a number.")))
        });
        Ok(Self {
            kind: text("kind")?,
            transport: text("transport")?
                .map(|name| if name == "-" { String::new() } else { name }),
            outcome: text("outcome")?,
            code: code.transpose()?,
        })
    }

    /// Whether all mail with the others has these.
    pub fn cover(&self, other: &Self) -> bool {
        let covers = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        covers(&self.kind, &other.kind)
            && covers(&self.transport, &other.transport)
            && covers(&self.outcome, &other.outcome)
            && (self.code.is_none() || self.code == other.code)
    }

    /// Their names and values, as forms have them; empty: any.
    fn fields(&self) -> [(&'static str, String); 4] {
        let of = |value: &Option<String>| value.clone().unwrap_or_default();
        let transport = match self.transport.as_deref() {
            Some("") => "-".to_owned(),
            _ => of(&self.transport),
        };
        let code = self.code.map(|code| code.to_string());
        [
            ("kind", of(&self.kind)),
            ("transport", transport),
            ("outcome", of(&self.outcome)),
            ("code", of(&code)),
        ]
    }

    /// The query of the question.
    pub fn query(&self, since: &str) -> String {
        let fields = self.fields();
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<(&str, &str)> = [("since", since)].into_iter().chain(fields).collect();
        query(&all)
    }

    /// The same for people.
    fn facts(&self) -> [(&'static str, String); 4] {
        let names = ["Kind", "Transport", "Outcome", "Code"];
        let mut all = self.fields().map(|(_, value)| match value.as_str() {
            "" => "any".to_owned(),
            "-" => "none (clients)".to_owned(),
            "lease_expired" => "lease expired".to_owned(),
            _ => value,
        });
        std::array::from_fn(|at| (names[at], std::mem::take(&mut all[at])))
    }
}

/// Why nothing is retried.
fn refused(message: &str) -> Notice {
    Notice {
        is_error: true,
        message: message.to_owned(),
        ..Notice::default()
    }
}

/// What a retry of many would do.
struct Counted {
    mails: i64,
    /// Since when it looks for failed mail: exact, and for people.
    since: String,
    shown_since: String,
}

/// What a retry of many would do, and the button that does it.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn confirm(view: &View<'_>, form: &Form) -> Result<Shown, Failure> {
    let conditions = match Conditions::of_form(form) {
        Ok(conditions) => conditions,
        Err(notice) => return not_asked(view, notice).await,
    };
    let span = since(form);
    if form.raw("since").trim() != span && !form.raw("since").is_empty() {
        let hint = format!("It is one of: {}.", SPANS.join(", "));
        let notice = Notice {
            hint,
            ..refused("There is no such interval.")
        };
        return not_asked(view, notice).await;
    }
    let parameters = [
        (&conditions.kind as _, Type::TEXT),
        (&conditions.transport as _, Type::TEXT),
        (&conditions.outcome as _, Type::TEXT),
        (&conditions.code as _, Type::INT4),
        (&span as _, Type::TEXT),
    ];
    let statement = include_str!("../../../../sql/page/retryable.sql");
    let read = view.session.run(Access::Read, async |statements| {
        let row = statements.one(statement, &parameters).await?;
        Ok(Counted {
            mails: row.number("mails")?,
            since: row.text("since")?,
            shown_since: row.text("shown_since")?,
        })
    });
    let (counted, clock) = match read.await {
        // An outcome that there is not, for example.
        Err(Failure::Statement(statement)) if statement.sqlstate.starts_with("22") => {
            return not_asked(view, refusal(&statement)).await;
        }
        read => read?,
    };
    let main = question(view, &conditions, span, &counted, &clock);
    let mut page = Page::new("Retry", Section::Failures, main);
    page.refresh = 0;
    Ok(Shown::Page(page, clock))
}

fn question(
    view: &View<'_>,
    conditions: &Conditions,
    span: &str,
    counted: &Counted,
    clock: &Clock,
) -> Markup {
    let mails = counted.mails;
    let most = mails.min(MOST);
    let count = match mails > MOST {
        true => format!("more than {}", number(MOST)),
        false => number(mails),
    };
    let messages = if mails == 1 { "message" } else { "messages" };
    let fields = conditions.fields();
    let limit = most.to_string();
    // What was counted: no later mail, and no more of it.
    let mut all = vec![("since", counted.since.as_str()), ("limit", &limit)];
    all.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
    let button = html! { button class="main" { "Retry " (number(most)) } };
    html! {
        div class="head" { h1 { "Retry " (count) " " (messages) "?" } }
        section class="panel" {
            div class="body" {
                p {
                    (count) " " (messages) (if mails == 1 { " matches" } else { " match" })
                    " and would be due now. Mail that matches is included whatever its error says. "
                    "Mail whose item key has been taken since, or whose link has ended, is left out."
                    @if mails > MOST { " " (number(MOST)) " are retried at a time, those that failed first." }
                }
                dl class="facts" {
                    @for (name, value) in conditions.facts() { dt { (name) } dd { (value) } }
                    dt { "Error" } dd { "any" }
                    dt { "Failed in the last" } dd { (span) ", since " (maybe_time(Some(&counted.shown_since), clock)) }
                }
                div class="acts" {
                    // Back to the list, not to this question.
                    @if mails > 0 { (view.form_of(("", "failures"), "failures/retry", &all, &button)) }
                    a class="button" href=(view.path("failures")) { "Back" }
                }
            }
        }
    }
}

/// The page for conditions that cannot be understood.
async fn not_asked(view: &View<'_>, notice: Notice) -> Result<Shown, Failure> {
    let read = view.session.run(Access::Read, async |_| Ok(()));
    let ((), clock) = read.await?;
    let main = html! {
        div class="head" { h1 { "Nothing is retried" } }
        div class="acts" { a class="button" href=(view.path("failures")) { "Failures" } }
    };
    let mut page = Page::new("Retry", Section::Failures, main);
    page.refresh = 0;
    let page = view.whole(&page, &clock, Some(&notice));
    Ok(Shown::Answer(response::html(StatusCode::BAD_REQUEST, page)))
}

/// Retries many: no more than were counted, of those that had failed by then or since.
///
/// # Errors
/// As all that is done.
pub async fn retry(statements: &Statements<'_>, form: &Form) -> Result<Done, Failure> {
    let asked = match asked(form) {
        Ok(asked) => asked,
        Err(notice) => {
            return Ok(Done {
                notice,
                ..Done::new("retried no failed message", "")
            });
        }
    };
    let (conditions, since, limit) = asked;
    let parameters = [
        (&conditions.kind as _, Type::TEXT),
        (&conditions.transport as _, Type::TEXT),
        (&conditions.outcome as _, Type::TEXT),
        (&conditions.code as _, Type::INT4),
        (&since as _, Type::TEXT),
        (&limit as _, Type::INT4),
    ];
    let statement = include_str!("../../../../sql/page/act_retry_failed.sql");
    let row = statements.one(statement, &parameters).await?;
    let mails = row.number("mails")?;
    let message = match mails {
        1 => "1 message is due now.".to_owned(),
        _ => format!("{} messages are due now.", number(mails)),
    };
    let mut done = Done::new(format!("retried {mails} failed messages"), message);
    if mails < i64::from(limit) {
        done.notice.detail = format!(
            "Of the {} that were counted, the others have been retried meanwhile, or are in use.",
            number(limit.into())
        );
    }
    Ok(done)
}

/// The answer to the question: conditions, since when, and at most how many.
fn asked(form: &Form) -> Result<(Conditions, String, i32), Notice> {
    let conditions = Conditions::of_form(form)?;
    let limit = form
        .number("limit")
        .filter(|limit| (1..=MOST).contains(limit));
    let limit = limit.and_then(|limit| i32::try_from(limit).ok());
    match (form.get("since"), limit) {
        (Some(since), Some(limit)) => Ok((conditions, since.to_owned(), limit)),
        _ => Err(Notice {
            hint: "Choose Retry in the list, which counts first.".to_owned(),
            ..refused("Nothing was retried: it is not said how many were counted, and since when.")
        }),
    }
}
