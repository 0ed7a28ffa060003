//! The outbox as the job runner's store: settles and claims in one transaction, whose statements are sent together.

use std::collections::HashSet;
use std::time::Duration;

use mailroom_core::deliver::exchange::Claimed;
use mailroom_core::deliver::files::Files;
use mailroom_core::deliver::settlements::Settlements;
use mailroom_core::deliver::store::{ClaimRequest, Store};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::statements::{
    Taken, ask_budgets, claim, fall_back, read_files, release, settle_failed, settle_sent,
};
use super::{LOCK_TIMEOUT, Parameter, STATEMENT_TIMEOUT, Session, unreadable};
use crate::database_error::DatabaseError;

/// How many searches for an unreadable mail follow each other, and after how many such series without success the
/// exchange fails.
///
/// A session scans behind its position in the queue as often as that is cheap. If always the failing claim did so, the
/// search after it never would; therefore several searches follow each other.
const SEARCHES: u32 = 4;
const MISSES: u32 = 8;

/// The claims over all connections. If a connection was lost, the outcome of its last transaction is not known.
#[derive(Default)]
pub struct Ledger {
    held: HashSet<i64>,
    /// Whether the database may have claims that no deliverer knows.
    has_orphans: bool,
    /// Number of mails that were attempted and settled.
    tried: u64,
}

impl Ledger {
    /// Number of mails that were attempted and settled so far.
    pub fn tried(&self) -> u64 {
        self.tried
    }

    fn note(&mut self, settled: &Settlements, claimed: Option<&Claimed>) {
        for id in settled.ids() {
            self.held.remove(id);
        }
        let mails = claimed.map_or(&[][..], |claimed| &claimed.mails);
        self.held.extend(mails.iter().map(|mail| mail.message.id));
        self.tried += (settled.sent.len() + settled.failed.len()) as u64;
    }
}

/// The outbox over a connection.
pub struct Outbox<'a> {
    session: &'a mut Session,
    ledger: &'a mut Ledger,
}

impl<'a> Outbox<'a> {
    /// The outbox over this connection.
    pub fn new(session: &'a mut Session, ledger: &'a mut Ledger) -> Self {
        Self { session, ledger }
    }

    /// Releases the claims of transactions whose outcome is not known.
    ///
    /// # Errors
    /// If the statement fails.
    pub fn release_orphans(&mut self, claimant: &str) -> Result<(), DatabaseError> {
        if !self.ledger.has_orphans {
            return Ok(());
        }
        let held: Vec<i64> = self.ledger.held.iter().copied().collect();
        let statement = include_str!("../../sql/release_orphans.sql");
        let parameters: [Parameter<'_>; 2] = [(&claimant, Type::TEXT), (&held, Type::INT8_ARRAY)];
        self.session
            .rows(STATEMENT_TIMEOUT, statement, &parameters)?;
        self.ledger.has_orphans = false;
        Ok(())
    }

    /// As [`Self::run`]; ends mail that cannot be read.
    fn run_readable(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        mut wanted: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Taken>), DatabaseError> {
        let all = wanted.as_ref().map(|wanted| wanted.limit.mails);
        let mut misses = 0;
        loop {
            let done = self.run(claimant, settlements, wanted.as_ref());
            // The connection may have been lost after the commit.
            self.ledger.has_orphans |= done.is_err() && wanted.is_some();
            let (failure, wanted) = match (done, &mut wanted) {
                (Err(failure), Some(wanted)) if unreadable::is_unreadable(&failure) => {
                    (failure, wanted)
                }
                (Ok((lost, Some(mut taken))), Some(wanted)) if Some(wanted.limit.mails) != all => {
                    // The claim was smaller than the limit, so there may be more mail.
                    taken.claimed.surplus += 1;
                    return Ok((lost, Some(taken)));
                }
                (done, _) => return done,
            };
            if wanted.limit.mails > 1 {
                wanted.limit.mails /= 2;
            } else if !self.end_unreadable(claimant, wanted.transport)? {
                // The search claimed other mail, because the server scans on from its position, or the mail has ended.
                misses += 1;
                if misses > MISSES {
                    return Err(failure);
                }
            }
        }
    }

    fn end_unreadable(&mut self, claimant: &str, transport: &str) -> Result<bool, DatabaseError> {
        for _ in 0..SEARCHES {
            if unreadable::end_next(self.session, claimant, transport)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn run(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        wanted: Option<&ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Taken>), DatabaseError> {
        let is_utf8 = self.session.is_utf8;
        let work = async |client: &Client| {
            let (sent, failed, released, fallen, claimed, budget) = tokio::join!(
                biased;
                settle_sent(client, claimant, &settlements.sent),
                settle_failed(client, claimant, &settlements.failed, is_utf8),
                release(client, claimant, &settlements.released),
                fall_back(client, wanted),
                claim(client, claimant, wanted),
                ask_budgets(client, wanted),
            );
            let mut lost = sent?;
            lost.extend(failed?);
            released?;
            fallen?;
            let (mut taken, budget) = (claimed?, budget?);
            if let (Some(taken), Some(wanted)) = (&mut taken, wanted) {
                let got = taken.claimed.mails.len() + taken.claimed.surplus;
                // A budget may be the reason that fewer mails were claimed.
                if got < wanted.limit.mails as usize {
                    taken.claimed.budget = budget;
                }
            }
            Ok((lost, taken))
        };
        let lock_timeout = settlements.lock_timeout().unwrap_or(LOCK_TIMEOUT);
        self.session
            .transaction_with(STATEMENT_TIMEOUT, lock_timeout, work)
    }

    /// Gives claimed mails their files. Ends those whose files cannot be read.
    ///
    /// In a transaction of its own: that of the claim ends without waiting for what it claimed. No purge deletes files of
    /// claimed mail.
    fn attach(&mut self, taken: &mut Taken) -> Result<(), DatabaseError> {
        let wanted = Files::wanted(&taken.claimed);
        if wanted.is_empty() {
            return Ok(());
        }
        let mut files = Files::default();
        match self.read_files(&wanted, &mut files) {
            Err(failure) if unreadable::is_unreadable(&failure) => {
                for mail in wanted {
                    match self.read_files(&[mail], &mut files) {
                        Err(failure) if unreadable::is_unreadable(&failure) => {
                            files.refuse(mail);
                        }
                        done => done?,
                    }
                }
            }
            done => done?,
        }
        let before = taken.rest.len();
        files.give(&mut taken.claimed, &mut taken.rest);
        taken.claimed.surplus += taken.rest.len() - before;
        Ok(())
    }

    fn read_files(&mut self, mails: &[i64], files: &mut Files) -> Result<(), DatabaseError> {
        self.session.transaction(STATEMENT_TIMEOUT, async |client| {
            read_files(client, mails, files).await
        })
    }
}

impl Store for Outbox<'_> {
    type Error = DatabaseError;

    fn exchange(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        wanted: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), DatabaseError> {
        let (lost, taken) = self.run_readable(claimant, settlements, wanted)?;
        let Some(mut taken) = taken else {
            self.ledger.note(settlements, None);
            return Ok((lost, None));
        };
        if let Err(failure) = self.attach(&mut taken) {
            // The claim is committed.
            self.ledger.has_orphans = true;
            return Err(failure);
        }
        let Taken { claimed, rest } = taken;
        self.ledger.note(settlements, Some(&claimed));
        // The claim is committed. If this fails, the claims are released later.
        if !rest.is_empty() && self.run(claimant, &rest, None).is_err() {
            self.ledger.has_orphans = true;
        }
        Ok((lost, Some(claimed)))
    }

    fn extend(
        &mut self,
        claimant: &str,
        ids: &[i64],
        lease: Duration,
    ) -> Result<Vec<i64>, DatabaseError> {
        let statement = include_str!("../../../../sql/queries/extend_claims.sql");
        let parameters: [Parameter<'_>; 3] = [
            (&ids, Type::INT8_ARRAY),
            (&claimant, Type::TEXT),
            (&lease.as_secs_f64(), Type::FLOAT8),
        ];
        self.session
            .call(STATEMENT_TIMEOUT, statement, &parameters, |row| {
                row.try_get(0)
            })
    }

    fn publish(
        &mut self,
        deliverer: &str,
        transports: String,
        problem: Option<String>,
    ) -> Result<(), DatabaseError> {
        let statement = include_str!("../../../../sql/queries/publish_transports.sql");
        let parameters: [Parameter<'_>; 3] = [
            (&deliverer, Type::TEXT),
            (&transports, Type::TEXT),
            (&problem, Type::TEXT),
        ];
        self.session
            .rows(STATEMENT_TIMEOUT, statement, &parameters)?;
        Ok(())
    }
}
