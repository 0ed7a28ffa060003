//! Polling the database, and with `--once` the decision to end.

use mailroom_core::deliver::runner::JobRunner;

use super::Database;
use crate::database_error::DatabaseError;
use crate::send::once::{Once, State};
use crate::send::plan::Ending;
use crate::send::watch::Watch;
use crate::session::Session;
use crate::session::outbox::Outbox;

impl Database {
    /// Polls the database. Returns whether mail is due; `None` after an error.
    pub(super) fn poll(
        &mut self,
        session: &mut Session,
        watch: &mut Watch,
    ) -> Result<Option<bool>, DatabaseError> {
        let transports = self.runner.iter().flat_map(JobRunner::transports);
        let polled = match session.poll(&transports.collect::<Vec<String>>()) {
            Ok(polled) => polled,
            Err(failure) if failure.is_gone() => return Err(failure),
            Err(failure) => {
                let delay = self.outage.begin(&self.plan, &failure, self.now());
                watch.put_off(self.now(), delay);
                return Ok(None);
            }
        };
        self.lease.set(session.settings().lease);
        self.paused = polled.paused;
        if let Some(runner) = &mut self.runner {
            runner.set_redirect(session.settings().redirect_to.as_deref());
        }
        if polled.is_not_listening && std::mem::take(&mut self.plan.listen) {
            self.plan.log.log(
                "notifications do not reach this connection, as behind a pooler in transaction mode: it polls",
            );
        }
        if self.plan.listen && !self.plan.once {
            session.listen()?;
        }
        Outbox::new(session, &mut self.ledger)
            .release_orphans(&self.claimant)
            .or_else(|failure| {
                if failure.is_gone() {
                    Err(failure)
                } else {
                    Ok(())
                }
            })?;
        self.outage.end(&self.plan, session, self.now());
        if watch.answer(self.now(), polled.due_in) {
            self.mail_due(false);
        }
        Ok(Some(polled.due_in.is_some_and(|seconds| seconds <= 0.0)))
    }

    /// With `--once`: how it ends, if it does.
    pub(super) fn is_over(
        &self,
        once: &mut Once,
        is_left: bool,
        collected: bool,
    ) -> Option<Ending> {
        let state = State {
            tried: self.ledger.tried(),
            holds: self.runner.as_ref().is_some_and(|runner| runner.held() > 0),
            is_left: is_left || !collected,
            is_paused: self.paused,
        };
        let ending = once.end(self.now(), &state)?;
        if ending == Ending::Left {
            let [what, detail, hint] = match is_left {
                true => [
                    "mail is due that cannot be sent now",
                    "It is left for later.",
                    "Look at mailroom_transports, mailroom_budgets and pauses.",
                ],
                false => [
                    "tokens wait that cannot be collected now",
                    "They are left for later.",
                    "Look at pauses and job_runs.",
                ],
            };
            self.plan.log.warn(what, detail, hint);
        }
        Some(ending)
    }
}
