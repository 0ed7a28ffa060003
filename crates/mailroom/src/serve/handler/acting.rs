//! Doing what a form asks for.

use std::rc::Rc;

use hyper::StatusCode;
use tokio::task::spawn_local;

use super::{Asked, Pages, error};
use crate::database_error::DatabaseError;
use crate::http_server::Answer;
use crate::serve::connection::{Access, Failure};
use crate::serve::database::Database;
use crate::serve::form::Form;
use crate::serve::pages;
use crate::serve::response::{plain, see_other};
use crate::serve::route::{self, Act};
use crate::serve::sessions::{Notice, Session};

impl Pages {
    pub(super) async fn post(&self, asked: &Asked<'_>, act: Act, body: &[u8]) -> Answer {
        if !self.site.is_own(asked.headers) {
            return plain(
                StatusCode::FORBIDDEN,
                "this form came from another page: behind a proxy, --url has to be what the browser shows\n",
            );
        }
        let form = Form::parse(body);
        if act == Act::LogIn {
            return self.log_in(asked, &form).await;
        }
        let Some(session) = self.session(asked, false) else {
            return self.to_log_in(asked);
        };
        if !session.has_sent(form.raw("csrf")) {
            return plain(
                StatusCode::FORBIDDEN,
                "this form is of another session: go back and reload\n",
            );
        }
        if act == Act::LogOut {
            return self.log_out(asked, &session);
        }
        let acting = perform(Rc::clone(&session), Rc::clone(asked.database), act, form);
        // A browser that hangs up does not keep it from being done, logged and told.
        match spawn_local(acting).await {
            Ok(Ok(to)) => see_other(&self.site.path(&asked.database.label, &to)),
            Ok(Err(failure)) => self.failed(asked, &session, failure),
            Err(_) => self.failed(
                asked,
                &session,
                Failure::Gone(DatabaseError::lost("a fault")),
            ),
        }
    }
}

/// Does it, and leaves a notice for the page that it returns. Fails if the session has ended.
async fn perform(
    session: Rc<Session>,
    database: Rc<Database>,
    act: Act,
    form: Form,
) -> Result<String, Failure> {
    let done = session
        .run(Access::Write, async |statements| {
            pages::act(statements, act, &form).await
        })
        .await;
    let (notice, to) = match done {
        Ok((done, _)) => {
            database
                .log
                .log(&format!("role \"{}\" {}", session.role, done.what));
            (done.notice, done.to)
        }
        Err(failure @ Failure::LoggedOut(_)) => return Err(failure),
        Err(failure) => (not_done(&session, &database, act, failure), None),
    };
    let back = form.get("back").filter(|back| route::is_page(back));
    let to = to.or_else(|| back.map(str::to_owned)).unwrap_or_default();
    session.leave(&to, notice);
    Ok(to)
}

/// What the page says of an act that failed.
fn not_done(session: &Session, database: &Database, act: Act, failure: Failure) -> Notice {
    match failure {
        Failure::Statement(statement) => {
            if statement.sqlstate == "42501" {
                session.doubt_rights();
            }
            pages::refusal(&statement)
        }
        Failure::NotReached(reason) => {
            database.warn("nothing was done", &reason.to_string());
            Notice {
                hint: "The database cannot be used now.".to_owned(),
                ..error("Nothing was done.")
            }
        }
        Failure::Gone(reason) | Failure::LoggedOut(reason) => {
            let what = format!(
                "it is not known whether role \"{}\" has done {act:?}: {reason}",
                session.role
            );
            database.log.warn(&what, "", "");
            Notice {
                hint: "The connection was lost before the database answered: look whether it was done."
                    .to_owned(),
                ..error("It is not known whether this was done.")
            }
        }
    }
}
