//! The pages.
//!
//! | module | owns |
//! |---|---|
//! | `log_in` | the log-in, the choice of a database, the page after a failure |
//! | `now` | whether all is well |
//! | `messages` | the list of messages |
//! | `rows` | its rows |
//! | `search` | what is looked for |
//! | `answer` | "did she get it?" |
//! | `message` | one message |
//! | `message_acts` | what can be done with it |
//! | `history` | what happened to a message |
//! | `preview` | what a message or a template says, in its frame |
//! | `failures` | what failed, by reason |
//! | `delivery` | worker, transports, deliverers |
//! | `templates` | templates and their preview |
//! | `suppressions` | who gets no mail |
//! | `operator_log` | what people did |
//! | `csv` | a list as CSV |

mod answer;
mod csv;
mod delivery;
mod failures;
mod history;
pub mod log_in;
mod message;
mod message_acts;
mod messages;
mod now;
mod operator_log;
mod preview;
mod rows;
mod search;
mod suppressions;
mod templates;

use hyper::header::HeaderMap;

use super::connection::{Clock, Failure, Statement, Statements};
use super::form::Form;
use super::layout::{Page, View};
use super::route::{Act, Route};
use super::sessions::Notice;
use crate::http_server::Answer;

/// What a page leads to.
pub enum Shown {
    Page(Page, Clock),
    NotFound(Page, Clock),
    Answer(Answer),
}

/// What was done.
#[derive(Default)]
pub struct Done {
    /// For the log, without addresses.
    pub what: String,
    pub notice: Notice,
    /// The page to go to, if it is another one.
    pub to: Option<String>,
}

impl Done {
    /// Something was done, or there was nothing to do.
    fn new(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            notice: Notice {
                message: message.into(),
                ..Notice::default()
            },
            to: None,
        }
    }

    /// Nothing was done, for this reason.
    fn nothing(what: impl Into<String>, message: impl Into<String>, hint: &str) -> Self {
        let mut done = Self::new(what, message);
        done.notice.is_error = true;
        done.notice.hint = hint.to_owned();
        done
    }
}

/// A page.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn show(
    view: &View<'_>,
    route: Route,
    form: &Form,
    headers: &HeaderMap,
) -> Result<Shown, Failure> {
    match route {
        Route::Now => now::show(view).await,
        Route::Messages => messages::show(view, form).await,
        Route::MessagesCsv => messages::csv(view, form).await,
        Route::Message(id) => message::show(view, id, form).await,
        Route::MessageHtml(id) => preview::message_html(view, id, headers).await,
        Route::Failures => failures::show(view, form).await,
        Route::FailuresRetry => failures::confirm(view, form).await,
        Route::Delivery => delivery::show(view).await,
        Route::Templates => templates::show(view).await,
        Route::Template(kind) => templates::preview(view, &kind, form).await,
        Route::TemplateHtml(kind) => preview::template_html(view, &kind, form, headers).await,
        Route::Suppressions => suppressions::show(view, form).await,
        Route::SuppressionsCsv => suppressions::csv(view, form).await,
        Route::Log => operator_log::show(view, form).await,
        Route::LogCsv => operator_log::csv(view, form).await,
        // Answered before.
        Route::LogIn => Ok(Shown::Answer(super::response::see_other(&view.path("")))),
    }
}

/// Does what a form asks for.
///
/// # Errors
/// It was not done, or that is not known because the connection was lost.
pub async fn act(statements: &Statements<'_>, act: Act, form: &Form) -> Result<Done, Failure> {
    match act {
        Act::Retry(id) => message_acts::retry(statements, id).await,
        Act::Cancel(id) => message_acts::cancel(statements, id).await,
        Act::Reschedule(id) => message_acts::reschedule(statements, id, form).await,
        Act::SendAgain(id) => message_acts::send_again(statements, id).await,
        Act::RequestLink => message_acts::request_link(statements, form).await,
        Act::EndLinks => message_acts::end_links(statements, form).await,
        Act::RetryFailed => failures::retry(statements, form).await,
        Act::Pause => delivery::pause(statements).await,
        Act::Resume => delivery::resume(statements).await,
        Act::Wake => delivery::wake(statements).await,
        Act::Suppress => suppressions::suppress(statements, form).await,
        Act::Unsuppress => suppressions::unsuppress(statements, form).await,
        // Done before.
        Act::LogIn | Act::LogOut => Ok(Done::default()),
    }
}

/// What the page says of a statement that the database refused.
pub fn refusal(statement: &Statement) -> Notice {
    let message = match statement.sqlstate.as_str() {
        "42501" => "Your role may not do this.".to_owned(),
        "57014" => "The database took too long, so this was given up.".to_owned(),
        "55P03" => "Another session holds what this needs. Please try again.".to_owned(),
        _ => capitalized(&statement.message),
    };
    let detail = match statement.sqlstate.as_str() {
        "42501" | "57014" | "55P03" => capitalized(&statement.message),
        _ => statement.detail.clone(),
    };
    Notice {
        is_error: true,
        message,
        detail,
        hint: statement.hint.clone(),
    }
}

/// With a capital at the beginning and a full stop at the end.
fn capitalized(message: &str) -> String {
    let mut rest = message.chars();
    let first = rest.next().map(|first| first.to_uppercase().to_string());
    let end = if message.ends_with(['.', '?', '!']) {
        ""
    } else {
        "."
    };
    format!("{}{}{end}", first.unwrap_or_default(), rest.as_str())
}
