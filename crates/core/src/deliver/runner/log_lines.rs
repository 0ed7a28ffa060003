//! The text of log lines about deliveries.

use crate::deliver::events::LogEvent;
use crate::deliver::store::LogLine;
use crate::transport::config::{ConfigError, TransportConfig};

/// The name of the program, which starts each line.
pub(super) struct LogPrefix(pub(super) &'static str);

impl LogPrefix {
    /// `mailroom.redirect_to` changed.
    pub(super) fn redirect(&self, address: Option<&str>) -> LogLine {
        match address {
            Some(address) => self.warning(
                "all mail is redirected to one address",
                &format!(
                    "mailroom.redirect_to is \"{address}\". The header X-Original-To names the recipients."
                ),
                "It is meant for development; RESET it to have mail go to its recipients.",
            ),
            None => self.line(": mail goes to its recipients again"),
        }
    }

    /// The transports file names other transports than before.
    pub(super) fn transports(&self, transports: &[TransportConfig]) -> LogLine {
        let names: Vec<String> = transports
            .iter()
            .map(|one| format!("{} ({})", one.name, one.provider_name))
            .collect();
        self.line(&format!(" delivers through {}", names.join(", ")))
    }

    /// The transports file cannot be read.
    pub(super) fn file_error(&self, error: &ConfigError) -> LogLine {
        self.warning(
            &error.to_string(),
            "The transports that were read before stay in force; without any, mail waits.",
            &error.hint(),
        )
    }

    /// The wall clock has jumped while mails are held.
    pub(super) fn clock_jump(&self, seconds: i64, held: usize) -> LogLine {
        self.line(&format!(
            ": the clock has jumped by {seconds} s; the leases of {held} mails under way are extended"
        ))
    }

    /// Exchanges succeed again.
    pub(super) fn recovered(&self) -> LogLine {
        self.line(" claims and settles mail again")
    }

    /// An event of a transport.
    pub(super) fn event(&self, transport: &str, event: &LogEvent) -> LogLine {
        match event {
            LogEvent::Paused(reason, next) => self.warning(
                &format!("transport \"{transport}\" paused: {reason}"),
                &format!(
                    "Its mail waits. The first probe, one message, follows in {} s.",
                    next.as_secs()
                ),
                "SELECT mailroom_wake_worker() probes at once.",
            ),
            LogEvent::Throttled(reason, wait) => self.line(&format!(
                ": transport \"{transport}\" throttled: {reason}; next request in {:.1} s",
                wait.as_secs_f64()
            )),
            LogEvent::Resumed(after) => self.line(&format!(
                ": transport \"{transport}\" resumed after {} s",
                after.as_secs()
            )),
            LogEvent::Failed(count, reason) => self.warning(
                &format!("transport \"{transport}\": mail ended as error: {count}"),
                &format!("The latest: {reason}."),
                "Look at outbox_attempts; mailroom_retry_failed puts them back.",
            ),
            LogEvent::RecipientsRefused { id, count, reason } => self.line(&format!(
                ": transport \"{transport}\": mail {id} sent, recipients refused: {count}; the first: {reason}"
            )),
            LogEvent::Logged(mail) => self.line(&format!(": transport \"{transport}\": {mail}")),
        }
    }

    fn line(&self, message: &str) -> LogLine {
        LogLine::Log(format!("{}{message}", self.0))
    }

    fn warning(&self, message: &str, detail: &str, hint: &str) -> LogLine {
        LogLine::Warning {
            message: format!("{}: {message}", self.0),
            detail: detail.to_owned(),
            hint: hint.to_owned(),
        }
    }
}
