//! What the deliverers have to say, as lines of the log.

use super::Owner;
use crate::deliver::events::News;
use crate::deliver::store::Host;

impl<H: Host> Owner<H> {
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
                &format!("{count} mails of transport \"{transport}\" ended as error"),
                &format!("The latest: {reason}."),
                "Look at outbox_attempts; mailroom_retry_failed puts them back.",
            ),
            News::RecipientsRefused { id, count, reason } => self.log(&format!(
                ": mail {id} was sent through transport \"{transport}\" without {count} of its recipients, who were refused: {reason}"
            )),
            News::Logged(mail) => self.log(&format!(": transport \"{transport}\": {mail}")),
        }
    }
}
