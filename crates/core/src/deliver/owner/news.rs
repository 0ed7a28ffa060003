//! What the deliverers have to say, as lines of the log.

use super::Owner;
use crate::deliver::events::News;
use crate::deliver::store::Host;

impl<H: Host> Owner<H> {
    /// `mailroom.redirect_to` as it is now; the log is told of a change.
    pub fn note_redirect(&mut self, address: Option<&str>) {
        if self.redirect_to.as_deref() == address {
            return;
        }
        match address {
            Some(address) => self.warn(
                "all mail is redirected to one address",
                &format!(
                    "mailroom.redirect_to is \"{address}\". The header X-Original-To names the recipients."
                ),
                "It is meant for development; RESET it to have mail go to its recipients.",
            ),
            None => self.log(": mail goes to its recipients again"),
        }
        self.redirect_to = address.map(str::to_owned);
    }

    /// A line of the log.
    pub(super) fn tell(&self, transport: &str, news: &News) {
        match news {
            News::Paused(reason, next) => self.warn(
                &format!("transport \"{transport}\" paused: {reason}"),
                &format!(
                    "Its mail waits. One message is tried in {} s, then now and then.",
                    next.as_secs()
                ),
                "SELECT mailroom_wake_worker() has one tried at once.",
            ),
            News::Throttled(reason, wait) => self.log(&format!(
                ": transport \"{transport}\" slowed: {reason}; next request in {:.1} s",
                wait.as_secs_f64()
            )),
            News::Resumed(after) => self.log(&format!(
                ": transport \"{transport}\" resumed after {} s",
                after.as_secs()
            )),
            News::Ended(count, reason) => self.warn(
                &format!("transport \"{transport}\": mail ended as error: {count}"),
                &format!("The latest: {reason}."),
                "Look at outbox_attempts; mailroom_retry_failed puts them back.",
            ),
            News::RecipientsRefused { id, count, reason } => self.log(&format!(
                ": transport \"{transport}\": mail {id} sent, recipients refused: {count}; the first: {reason}"
            )),
            News::Logged(mail) => self.log(&format!(": transport \"{transport}\": {mail}")),
        }
    }
}
