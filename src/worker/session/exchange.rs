//! Settles and claims mail in one transaction, so that both cost one commit.

use std::collections::HashSet;
use std::time::Duration;

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::{SpiClient, SpiTupleTable};

use super::mail::{ClaimedRow, Columns};
use super::statement::{call, integer, prepared, required};
use super::transaction::transaction;
use super::{Failure, Session};
use crate::pg::encoding::Text;
use crate::pg::signals::stop_requested;
use crate::pg::transaction as pg_transaction;
use crate::pg::{options, process};
use crate::restore;
use mailroom_core::deliver::exchange::{BudgetState, Claimed};
use mailroom_core::deliver::files::Files;
use mailroom_core::deliver::mail::{Claim, Mail};
use mailroom_core::deliver::settlements::{FailedAttempt, FailedMail, Settlements, column};
use mailroom_core::deliver::store::{
    ClaimRequest, ErrorKind, LOCK_NOT_AVAILABLE, Store, StoreError,
};
use mailroom_core::row::ReadError;

impl Store for Session {
    type Error = Failure;

    fn exchange(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        wanted: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), Failure> {
        let done = transaction(Some(self.collector), || {
            self.check_extension()?;
            if wanted.is_some() && !restore::may_hand_out() {
                return Err(Failure::Restoring);
            }
            // Unlike the worker's batches, waits for synchronous standbys as the server is configured: otherwise, after
            // a failover, mail would be sent twice and a spent budget would be spent again. Not during a stop, when no
            // more mail is sent.
            if !stop_requested() {
                options::reset_until_commit(c"synchronous_commit");
            }
            if settlements.has_attempts() {
                // A crash must not lose a settled attempt: its mail would be sent twice.
                pg_transaction::force_sync_commit();
            }
            if let Some(limit) = settlements.lock_timeout() {
                let limit = format!("{}ms", limit.as_millis());
                options::set_until_commit(c"lock_timeout", &limit);
            }
            Spi::connect_mut(|client| {
                let lost = settle(client, claimant, settlements)?;
                let claimed = wanted
                    .map(|wanted| {
                        fall_back(client, &wanted)?;
                        claim(client, claimant, &wanted)
                    })
                    .transpose()?;
                Ok((lost, claimed))
            })
        });
        // The statement may have failed because the extension was dropped.
        done.map_err(|failure| match self.is_gone() {
            true => Failure::ExtensionGone,
            false => failure,
        })
    }

    fn extend(
        &mut self,
        claimant: &str,
        ids: &[i64],
        lease: Duration,
    ) -> Result<Vec<i64>, Failure> {
        transaction(Some(self.collector), || {
            self.check_extension()?;
            Spi::connect_mut(|client| {
                // The arguments are made here because looking up an array type requires a transaction.
                let rows = run(
                    client,
                    include_str!("../../../sql/queries/extend_claims.sql"),
                    &[
                        ids.to_vec().into(),
                        claimant.into(),
                        lease.as_secs_f64().into(),
                    ],
                )?;
                required(&rows.first(), 1)
            })
        })
    }

    fn publish(
        &mut self,
        deliverer: &str,
        transports: String,
        problem: Option<String>,
    ) -> Result<(), Failure> {
        transaction(Some(self.collector), || {
            self.check_extension()?;
            // Made here because the conversion of non-ASCII text requires a transaction.
            let arguments = [
                deliverer.into(),
                Text(Some(transports)).into(),
                problem.map(|problem| Text(Some(problem))).into(),
            ];
            call(
                include_str!("../../../sql/queries/publish_transports.sql"),
                &arguments,
                |_| Ok(()),
            )
        })
    }
}

impl Session {
    /// Takes over from earlier workers of this database: expires their claims that were made on this timeline, and
    /// deletes their transports.
    pub fn take_over(&self) {
        let timeline = process::timeline();
        let taken = self.call(
            include_str!("../../../sql/queries/expire_claims_of_predecessors.sql"),
            &[timeline.as_str().into()],
            |_| Ok(()),
        );
        if let Err(failure) = taken {
            failure.warn("mailroom worker could not take over the claims of an earlier one");
        }
    }
}

impl StoreError for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ExtensionGone => ErrorKind::Gone,
            Self::Restoring => ErrorKind::Restoring,
            Self::Refused { sqlstate, .. } if sqlstate == LOCK_NOT_AVAILABLE => ErrorKind::Locked,
            Self::Refused { .. } if self.is_row_at_fault() => ErrorKind::Row,
            Self::Refused { .. } => ErrorKind::Other,
        }
    }

    fn warn(&self, what: &str) {
        Failure::warn(self, what);
    }
}

/// Runs a statement that is prepared once in this process, so that it is not parsed and planned for each exchange.
fn run<'c>(
    client: &mut SpiClient<'c>,
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
) -> Result<SpiTupleTable<'c>, Failure> {
    let prepared = prepared(client, statement, arguments)?;
    Ok(client.update(prepared, None, arguments)?)
}

/// Returns the ids that are not in `held`.
fn lost(ids: &[i64], held: Vec<i64>) -> Vec<i64> {
    if held.len() == ids.len() {
        return Vec::new();
    }
    let held: HashSet<i64> = held.into_iter().collect();
    ids.iter()
        .copied()
        .filter(|id| !held.contains(id))
        .collect()
}

fn settle(
    client: &mut SpiClient<'_>,
    claimant: &str,
    settlements: &Settlements,
) -> Result<Vec<i64>, Failure> {
    let mut all_lost = Vec::new();
    let Settlements {
        sent,
        failed,
        released,
        is_hurried: _,
    } = settlements;
    if !sent.is_empty() {
        let ids = column(sent, |one| one.claim.id);
        let rows = run(
            client,
            include_str!("../../../sql/queries/settle_sent.sql"),
            &[
                ids.clone().into(),
                texts(sent, |one| one.provider_id.clone()).into(),
                claimant.into(),
                column(sent, |one| one.claim.attempts).into(),
                texts(sent, |one| one.refused.clone()).into(),
            ],
        )?;
        all_lost.extend(lost(&ids, required(&rows.first(), 1)?));
    }
    if !failed.is_empty() {
        let ids = column(failed, |one| one.claim.id);
        let waits = column(failed, |one| {
            one.attempt.retry_after.map(|wait| wait.as_secs_f64())
        });
        let rows = run(
            client,
            include_str!("../../../sql/queries/settle_failed.sql"),
            &[
                ids.clone().into(),
                texts(failed, |one| Some(one.attempt.reason.clone())).into(),
                waits.into(),
                column(failed, |one| one.attempt.permanent).into(),
                column(failed, |one| one.attempt.status.map(i32::from)).into(),
                claimant.into(),
                column(failed, |one| one.claim.attempts).into(),
                column(failed, |one| one.attempt.is_ambiguous()).into(),
                column(failed, |one| one.attempt.is_alone()).into(),
                texts(failed, |one| one.attempt.batch.clone()).into(),
                column(failed, |one| one.attempt.recipient_refused).into(),
            ],
        )?;
        all_lost.extend(lost(&ids, required(&rows.first(), 1)?));
    }
    release(client, claimant, released)?;
    Ok(all_lost)
}

fn release(client: &mut SpiClient<'_>, claimant: &str, released: &[Claim]) -> Result<(), Failure> {
    if released.is_empty() {
        return Ok(());
    }
    run(
        client,
        include_str!("../../../sql/queries/settle_released.sql"),
        &[
            column(released, |claim| claim.id).into(),
            claimant.into(),
            column(released, |claim| claim.attempts).into(),
        ],
    )?;
    Ok(())
}

/// Moves due mail to this transport from transports that have been paused for long enough.
fn fall_back(client: &mut SpiClient<'_>, wanted: &ClaimRequest<'_>) -> Result<(), Failure> {
    if wanted.paused.is_empty() {
        return Ok(());
    }
    let paused = wanted.paused.iter();
    let names: Vec<String> = paused.clone().map(|(name, _)| name.to_string()).collect();
    let seconds: Vec<f64> = paused.map(|(_, since)| since.as_secs_f64()).collect();
    run(
        client,
        include_str!("../../../sql/queries/fall_back.sql"),
        &[
            wanted.transport.into(),
            names.into(),
            seconds.into(),
            integer(wanted.limit.mails).into(),
        ],
    )?;
    Ok(())
}

fn claim(
    client: &mut SpiClient<'_>,
    claimant: &str,
    wanted: &ClaimRequest<'_>,
) -> Result<Claimed, Failure> {
    let limit = wanted.limit;
    let mut claimed = Claimed::default();
    let mut room = limit.bytes;
    // Claims that do not fit, and mails that cannot be read.
    let mut rest = Settlements::default();
    let rows = run(
        client,
        include_str!("../../../sql/queries/claim_mail.sql"),
        &[
            integer(limit.mails).into(),
            claimant.into(),
            vec![wanted.transport.to_owned()].into(),
            wanted.lease.as_secs_f64().into(),
        ],
    )?;
    let columns = Columns::of(&rows)?;
    for row in rows {
        let row = ClaimedRow {
            row,
            columns: &columns,
        };
        let size = Mail::size(&row)?;
        if size > room && !claimed.mails.is_empty() {
            // Its contents were not read yet, so a mail that does not fit costs no memory.
            rest.released.push(Claim::read(&row)?);
            room = 0;
            continue;
        }
        room = room.saturating_sub(size);
        match Mail::read(&row, size) {
            Ok(mail) => claimed.mails.push(mail),
            Err(ReadError::NotText(column)) => {
                let (claim, attempt) = (Claim::read(&row)?, FailedAttempt::not_text(column));
                rest.failed.push(FailedMail { claim, attempt });
            }
            Err(ReadError::Row(failure)) => return Err(failure),
        }
    }
    attach(client, &mut claimed, &mut rest)?;
    settle(client, claimant, &rest)?;
    // More mail may follow these in the queue.
    claimed.surplus = rest.len();
    if limit.check_budgets && claimed.mails.len() + claimed.surplus < limit.mails as usize {
        claimed.budget = Some(ask_budgets(client)?);
    }
    Ok(claimed)
}

/// Reads the files of the claimed mails.
fn attach(
    client: &mut SpiClient<'_>,
    claimed: &mut Claimed,
    rest: &mut Settlements,
) -> Result<(), Failure> {
    let wanted = Files::wanted(claimed);
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = run(
        client,
        include_str!("../../../sql/queries/attachments.sql"),
        &[wanted.into()],
    )?;
    let columns = &Columns::of(&rows)?;
    let mut files = Files::default();
    for row in rows {
        files.read(&ClaimedRow { row, columns })?;
    }
    files.give(claimed, rest);
    Ok(())
}

fn ask_budgets(client: &mut SpiClient<'_>) -> Result<BudgetState, Failure> {
    let rows = run(client, include_str!("../../../sql/queries/budget.sql"), &[])?;
    let row = rows.first();
    let room: Option<i64> = row.get(1)?;
    let frees_at: Option<pgrx::datum::TimestampWithTimeZone> = row.get(2)?;
    Ok(match (room, frees_at) {
        (None, _) => BudgetState::Unlimited,
        (Some(0), Some(end)) => {
            let micros = i64::from(end).saturating_sub(process::now()).max(0);
            BudgetState::SpentFor(Duration::from_micros(micros.unsigned_abs()))
        }
        (Some(_), _) => BudgetState::Available,
    })
}

/// An argument of type text[].
fn texts<M>(mails: &[M], text: impl Fn(&M) -> Option<String>) -> Vec<Option<Text>> {
    column(mails, |mail| text(mail).map(|text| Text(Some(text))))
}
