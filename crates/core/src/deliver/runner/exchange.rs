//! Executes exchanges, which settle and claim in one transaction, and extends leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::JobRunner;
use crate::deliver::Time;
use crate::deliver::exchange::ExchangeResult;
use crate::deliver::settlements::Settlements;
use crate::deliver::store::{ClaimRequest, ErrorKind, Host, Store, StoreError};
use crate::deliver::thread::Exchange;

/// The wait before a failed exchange is repeated while the process stops.
const STOP_RETRY: Duration = Duration::from_millis(100);
/// The same while a restore is running.
const RESTORE_RETRY: Duration = Duration::from_secs(1);
/// Number of mails of which none can be settled, after which the cause is not any of them.
const MAX_UNSETTLED: usize = 8;
/// Number of locked mails that one exchange waits for; others may be locked for as long, and all other mail waits.
const MAX_WAITS: usize = 2;
/// Number of locked mails after which the others are left for the next time: a quarter of a second.
const MAX_LOCKED: usize = 50;
/// How often a mail that cannot be settled is tried while others are settled, if its contents are not at fault.
const MAX_REFUSALS: u32 = 5;
/// The wait between these tries.
const REPEAT_DELAY: Duration = Duration::from_secs(1);
/// Number of statements that look for the rows because of which leases cannot be extended: five rows of 2,048.
const MAX_EXTENSIONS: u32 = 128;
/// How long that takes at most. An error that took longer is one of a lock or of the system.
const EXTENSION_TIME: Duration = Duration::from_secs(2);

impl<H: Host> JobRunner<H> {
    /// Executes an exchange and reports its result to the delivery thread.
    ///
    /// # Errors
    /// If the store no longer exists, or leases cannot be extended.
    pub(super) fn exchange<S: Store>(
        &mut self,
        store: &mut S,
        exchange: Exchange,
        now: Time,
    ) -> Result<(), S::Error> {
        let Exchange {
            transport,
            settlements,
            claim: limit,
            paused,
        } = exchange;
        if settlements.ids().any(|id| self.refusals.contains(*id)) {
            return self.settle_each(store, &transport, *settlements, now);
        }
        let began = Instant::now();
        let asked_at = self.thread.now();
        let lease = self.host.lease();
        let request = limit.map(|limit| ClaimRequest {
            transport: &transport,
            limit,
            lease,
            paused: &paused,
        });
        let (lost, claimed) = match store.exchange(&self.claimant, &settlements, request) {
            Ok(result) => result,
            Err(error) => return self.note_error(&transport, *settlements, error, now),
        };
        // A claim does not show that what waits can be settled.
        if !settlements.is_empty() || self.refusals.is_empty() {
            self.end_failures(&transport);
        }
        if self.host.stop_requested() {
            // The mail that was just claimed is not sent.
            self.thread.stop();
        }
        self.note_settled(&settlements);
        if let Some(claimed) = &claimed {
            if self.held.is_empty() {
                (self.extended_at, self.leases_began_at, self.lease) = (now, asked_at, lease);
            }
            self.lease = self.lease.min(lease);
            let ids = claimed.mails.iter().map(|mail| mail.message.id);
            self.held.extend(ids);
            self.set_leases_end();
        }
        let result = ExchangeResult {
            settled: *settlements,
            lost,
            claimed: limit.zip(claimed),
            ..ExchangeResult::default()
        };
        self.thread.exchanged(&transport, result);
        if began.elapsed() >= self.extension_interval() {
            // The commit waited for a standby, and the leases began before.
            self.extend(store, now)?;
        }
        Ok(())
    }

    /// Extends all leases if the wall clock has jumped. Must be called before expired leases are searched for.
    ///
    /// # Errors
    /// No lease was extended.
    pub fn check_clock<S: Store>(&mut self, store: &mut S, now: Time) -> Result<(), S::Error> {
        match self.clock.take_jump() {
            Some(jump) if !self.held.is_empty() => {
                let seconds = jump / 1_000_000;
                self.host
                    .log(&self.log.clock_jump(seconds, self.held.len()));
                self.extend(store, now)
            }
            _ => Ok(()),
        }
    }

    /// Extends the leases of all held mails.
    ///
    /// # Errors
    /// No lease was extended.
    pub fn extend<S: Store>(&mut self, store: &mut S, now: Time) -> Result<(), S::Error> {
        self.extended_at = now;
        if self.held.is_empty() {
            return Ok(());
        }
        let asked_at = self.thread.now();
        let ids: Vec<i64> = self.held.iter().copied().collect();
        let mut statements = MAX_EXTENSIONS;
        let until = Instant::now() + EXTENSION_TIME;
        let lease = self.host.lease();
        let valid = self.extend_all_but_refused(store, &ids, &mut statements, until)?;
        (self.leases_began_at, self.lease) = (asked_at, lease);
        if valid.len() < ids.len() {
            // The others stay in `held` until they are settled or released.
            self.thread.keep_claims(valid.into_iter().collect());
        }
        // Only now: a mail whose claim was lost must not be sent.
        self.set_leases_end();
        Ok(())
    }

    /// Extends these leases; halves them after an error, so that a row that cannot be changed, because of a trigger on the
    /// outbox for example, costs no other its lease (I8). Returns the mails whose claims are still valid.
    ///
    /// # Errors
    /// No lease was extended.
    fn extend_all_but_refused<S: Store>(
        &self,
        store: &mut S,
        ids: &[i64],
        statements: &mut u32,
        until: Instant,
    ) -> Result<Vec<i64>, S::Error> {
        *statements = statements.saturating_sub(1);
        let error = match store.extend(&self.claimant, ids, self.host.lease()) {
            Ok(valid) => return Ok(valid),
            Err(error) => error,
        };
        let may_be_a_row = matches!(
            error.kind(),
            ErrorKind::Row | ErrorKind::Locked | ErrorKind::Other
        );
        let is_over = *statements == 0 || Instant::now() >= until || self.host.stop_requested();
        if ids.len() == 1 || !may_be_a_row || is_over {
            return Err(error);
        }
        let (first, second) = ids.split_at(ids.len() / 2);
        let halves =
            [first, second].map(|half| self.extend_all_but_refused(store, half, statements, until));
        let (valid, refused, error) = match halves {
            [Ok(valid), Ok(others)] => return Ok([valid, others].concat()),
            [Err(_), Err(error)] => return Err(error),
            [Ok(valid), Err(error)] => (valid, second, error),
            [Err(error), Ok(valid)] => (valid, first, error),
        };
        error.warn(&format!(
            "{} could not extend the claims of {} mails, which will lapse, among them {}",
            self.log.0,
            refused.len(),
            refused[0]
        ));
        Ok(valid)
    }

    fn set_leases_end(&self) {
        self.thread
            .set_leases_end(self.leases_began_at.saturating_add(self.lease));
    }

    /// Settles each mail in a transaction of its own, after settling several together has failed. A mail that cannot be
    /// settled, because of a trigger on the outbox for example, then does not keep others from being settled (I8): whose
    /// fault an error is shows in whether others are settled, or leases extended.
    fn settle_each<S: Store>(
        &mut self,
        store: &mut S,
        transport: &Arc<str>,
        settlements: Settlements,
        now: Time,
    ) -> Result<(), S::Error> {
        let mut result = ExchangeResult::default();
        let mut refused: Vec<(i64, Settlements, S::Error)> = Vec::new();
        let mut rest = self.refusals.begin_pass(settlements, MAX_WAITS).into_iter();
        let (mut is_hopeless, mut database_works, mut others_settled) = (false, false, false);
        let mut locked = 0;
        while !is_hopeless
            && locked < MAX_LOCKED
            && let Some(mut one) = rest.next()
        {
            one.is_hurried = locked >= MAX_WAITS;
            match store.exchange(&self.claimant, &one, None) {
                Ok((lost, _)) => {
                    self.note_settled(&one);
                    others_settled = true;
                    result.lost.extend(lost);
                    result.settled.extend(one);
                }
                Err(error) => {
                    let id = one.ids().next().copied().unwrap_or_default();
                    others_settled |= self.refusals.refuse(id, !one.is_hurried);
                    is_hopeless = match error.kind() {
                        ErrorKind::Gone | ErrorKind::Restoring => true,
                        ErrorKind::Row => false,
                        ErrorKind::Locked => {
                            locked += 1;
                            (locked >= MAX_LOCKED && !others_settled) || self.host.stop_requested()
                        }
                        // A stop cancels statements.
                        ErrorKind::Other => {
                            database_works |= others_settled || self.can_extend(store, id);
                            !database_works || self.host.stop_requested()
                        }
                    };
                    refused.push((id, one, error));
                    is_hopeless |= !others_settled && refused.len() - locked >= MAX_UNSETTLED;
                }
            }
        }
        if !result.settled.is_empty() {
            self.end_failures(transport);
        }
        rest.for_each(|one| result.repeated.extend(one));
        if is_hopeless && let Some((_, last, error)) = refused.pop() {
            let earlier = refused.into_iter().map(|(_, one, _)| one);
            earlier.for_each(|one| result.repeated.extend(one));
            result.repeated.extend(last);
            let delay = self.retry_delay(&result.repeated, &error, now);
            result.repeat_after = delay.unwrap_or_default();
            self.thread.exchanged(transport, result);
            return delay.map(drop).ok_or(error);
        }
        self.note_refused(&mut result, refused);
        self.thread.exchanged(transport, result);
        Ok(())
    }

    /// No longer holds what was settled.
    fn note_settled(&mut self, settled: &Settlements) {
        for id in settled.ids() {
            self.held.remove(id);
            self.refusals.settle(*id);
        }
    }

    /// The database works again, for this transport.
    fn end_failures(&mut self, transport: &Arc<str>) {
        self.failing.remove(transport);
        if self.failing.is_empty() && self.failures.end() > 0 {
            self.host.log(&self.log.recovered());
        }
    }

    /// Whether another change of this row succeeds, which shows that the database works.
    fn can_extend<S: Store>(&self, store: &mut S, id: i64) -> bool {
        store.extend(&self.claimant, &[id], self.lease).is_ok()
    }

    /// The database refused these while it worked. Those that are locked are repeated until they are not. Others are
    /// repeated several times, unless their contents are at fault, and then given up: the claim expires, which counts as
    /// an attempt, so that the mail ends eventually.
    fn note_refused<E: StoreError>(
        &mut self,
        result: &mut ExchangeResult,
        refused: Vec<(i64, Settlements, E)>,
    ) {
        let mut last_error = None;
        for (id, one, error) in refused {
            let is_repeated = match error.kind() {
                ErrorKind::Locked => true,
                ErrorKind::Other => self.refusals.count(id) < MAX_REFUSALS,
                _ => false,
            };
            if is_repeated {
                result.repeated.extend(one);
                result.repeat_after = REPEAT_DELAY;
                continue;
            }
            self.refusals.forget(id);
            self.held.remove(&id);
            result.unsettled.extend(one);
            last_error = Some(error);
        }
        if let Some(error) = last_error {
            let ids: Vec<String> = result.unsettled.ids().take(5).map(i64::to_string).collect();
            error.warn(&format!(
                "{} could not settle {} mails, whose claims will lapse, among them {}",
                self.log.0,
                result.unsettled.len(),
                ids.join(", ")
            ));
        }
    }

    /// An exchange failed and changed nothing: it is repeated later.
    ///
    /// # Errors
    /// The error itself, if the store no longer exists, so that no repetition can succeed.
    fn note_error<E: StoreError>(
        &mut self,
        transport: &Arc<str>,
        settlements: Settlements,
        error: E,
        now: Time,
    ) -> Result<(), E> {
        self.failing.insert(Arc::clone(transport));
        let delay = self.retry_delay(&settlements, &error, now);
        let result = ExchangeResult {
            repeated: settlements,
            retry_after: delay.unwrap_or_default(),
            ..ExchangeResult::default()
        };
        self.thread.exchanged(transport, result);
        delay.map(drop).ok_or(error)
    }

    /// When to repeat what failed; `None` if the store no longer exists, so that no repetition can succeed.
    fn retry_delay<E: StoreError>(
        &mut self,
        settlements: &Settlements,
        error: &E,
        now: Time,
    ) -> Option<Duration> {
        // A stop cancels statements too, so it is checked first.
        if self.host.stop_requested() {
            self.refusals.suspect(settlements);
            return Some(STOP_RETRY);
        }
        match error.kind() {
            ErrorKind::Gone => None,
            // Requests in flight are settled when the restore is over.
            ErrorKind::Restoring => Some(RESTORE_RETRY),
            kind @ (ErrorKind::Row | ErrorKind::Locked | ErrorKind::Other) => {
                self.refusals.suspect(settlements);
                let retry = self.failures.record(now);
                let delay = match kind {
                    ErrorKind::Locked => REPEAT_DELAY,
                    _ => retry.delay,
                };
                if retry.log {
                    error.warn(&format!(
                        "{} could not claim or settle mail (attempt {}, next in {} s)",
                        self.log.0,
                        self.failures.count(),
                        delay.as_secs()
                    ));
                }
                Some(delay)
            }
        }
    }
}

#[cfg(test)]
mod tests;
