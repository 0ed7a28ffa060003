//! The outbox as the deliverer's store: settling and claiming in one transaction, whose statements are sent together.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use mailroom_core::deliver::intake::{Budget, Claimed};
use mailroom_core::deliver::settlements::{Failed, Released, Sent, Settlements};
use mailroom_core::deliver::store::{Claim, Store};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::{Parameter, STATEMENT_TIMEOUT, Session, row, unreadable};
use crate::failure::Failure;

/// How often a mail that cannot be read is looked for in a row, and how many such rows in vain the exchange fails after.
///
/// A session looks behind its position in the queue as often as that is cheap. If the claim that fails always did so, the
/// search, which comes right after it, never would: hence several in a row.
const SEARCHES: u32 = 4;
const MISSES: u32 = 8;

/// What is claimed, over all connections: of a transaction in which one was lost it is not known how it ended.
#[derive(Default)]
pub struct Ledger {
    held: HashSet<i64>,
    /// Claims may have been made that no deliverer knows of.
    has_orphans: bool,
    /// Mails that were tried and settled.
    tried: u64,
}

impl Ledger {
    /// How many mails were tried and settled so far.
    pub fn tried(&self) -> u64 {
        self.tried
    }

    fn note(&mut self, settled: &Settlements, claimed: Option<&Claimed>) {
        for id in settled.ids() {
            self.held.remove(id);
        }
        let mails = claimed.map_or(&[][..], |claimed| &claimed.mails);
        self.held.extend(mails.iter().map(|mail| mail.message.id));
        self.tried += (settled.sent.ids.len() + settled.failed.ids.len()) as u64;
    }
}

/// The outbox of a connection.
pub struct Outbox<'a> {
    session: &'a mut Session,
    ledger: &'a mut Ledger,
}

impl<'a> Outbox<'a> {
    /// The outbox over this connection.
    pub fn new(session: &'a mut Session, ledger: &'a mut Ledger) -> Self {
        Self { session, ledger }
    }

    /// Gives back what was claimed in transactions whose end was not heard of.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn release_orphans(&mut self, claimant: &str) -> Result<(), Failure> {
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

    /// As [`Self::run`]; a mail that cannot be read is looked for, and ended.
    fn run_readable(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        mut wanted: Option<Claim<'_>>,
    ) -> Result<(Vec<i64>, Option<Taken>), Failure> {
        let all = wanted.as_ref().map(|wanted| wanted.appetite.mails);
        let mut misses = 0;
        loop {
            let done = self.run(claimant, settlements, wanted.as_ref());
            // The connection may have ended after the commit.
            self.ledger.has_orphans |= done.is_err() && wanted.is_some();
            let (failure, wanted) = match (done, &mut wanted) {
                (Err(failure), Some(wanted)) if unreadable::is_unreadable(&failure) => {
                    (failure, wanted)
                }
                (Ok((lost, Some(mut taken))), Some(wanted))
                    if Some(wanted.appetite.mails) != all =>
                {
                    // There is more behind these.
                    taken.claimed.surplus += 1;
                    return Ok((lost, Some(taken)));
                }
                (done, _) => return done,
            };
            if wanted.appetite.mails > 1 {
                wanted.appetite.mails /= 2;
            } else if !self.end_unreadable(claimant, wanted.transport)? {
                // It was another mail's turn, because the server goes on behind one that it looked at, or it has ended.
                misses += 1;
                if misses > MISSES {
                    return Err(failure);
                }
            }
        }
    }

    fn end_unreadable(&mut self, claimant: &str, transport: &str) -> Result<bool, Failure> {
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
        wanted: Option<&Claim<'_>>,
    ) -> Result<(Vec<i64>, Option<Taken>), Failure> {
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
                // They may be why there was no more.
                if got < wanted.appetite.mails as usize {
                    taken.claimed.budget = budget;
                }
            }
            Ok((lost, taken))
        };
        self.session.transaction(STATEMENT_TIMEOUT, work)
    }
}

impl Store for Outbox<'_> {
    type Failure = Failure;

    fn exchange(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        wanted: Option<Claim<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), Failure> {
        let (lost, taken) = self.run_readable(claimant, settlements, wanted)?;
        let Some(Taken { claimed, rest }) = taken else {
            self.ledger.note(settlements, None);
            return Ok((lost, None));
        };
        self.ledger.note(settlements, Some(&claimed));
        // The claim is committed; should this fail, the orphans are given back later.
        if !rest.is_empty() && self.run(claimant, &rest, None).is_err() {
            self.ledger.has_orphans = true;
        }
        Ok((lost, Some(claimed)))
    }

    fn extend(&mut self, claimant: &str, ids: &[i64]) -> Result<Vec<i64>, Failure> {
        let statement = include_str!("../../../../sql/queries/extend_claims.sql");
        let parameters: [Parameter<'_>; 2] = [(&ids, Type::INT8_ARRAY), (&claimant, Type::TEXT)];
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
    ) -> Result<(), Failure> {
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

/// What a claim brought.
struct Taken {
    claimed: Claimed,
    /// What there was no room for, or cannot be read: to be told after the claim.
    rest: Settlements,
}

/// Those of the mails that are not among these.
fn lost(ids: &[i64], rows: &[Row]) -> Result<Vec<i64>, Failure> {
    let held: Vec<i64> = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => Vec::new(),
    };
    if held.len() == ids.len() {
        return Ok(Vec::new());
    }
    let held: HashSet<i64> = held.into_iter().collect();
    let is_lost = |id: &i64| !held.contains(id);
    Ok(ids.iter().copied().filter(is_lost).collect())
}

async fn settle_sent(client: &Client, claimant: &str, sent: &Sent) -> Result<Vec<i64>, Failure> {
    if sent.ids.is_empty() {
        return Ok(Vec::new());
    }
    let statement = include_str!("../../../../sql/queries/settle_sent.sql");
    let parameters: [Parameter<'_>; 5] = [
        (&sent.ids, Type::INT8_ARRAY),
        (&sent.provider_ids, Type::TEXT_ARRAY),
        (&claimant, Type::TEXT),
        (&sent.attempts, Type::INT4_ARRAY),
        (&sent.refused, Type::TEXT_ARRAY),
    ];
    lost(
        &sent.ids,
        &client.query_typed(statement, &parameters).await?,
    )
}

/// Tells of failures; returns those of the mails whose claims were lost.
pub async fn settle_failed(
    client: &Client,
    claimant: &str,
    failed: &Failed,
    is_utf8: bool,
) -> Result<Vec<i64>, Failure> {
    if failed.ids.is_empty() {
        return Ok(Vec::new());
    }
    let errors: Vec<String> = failed
        .errors
        .iter()
        .map(|error| fit(error, is_utf8))
        .collect();
    let statement = include_str!("../../../../sql/queries/settle_failed.sql");
    let parameters: [Parameter<'_>; 10] = [
        (&failed.ids, Type::INT8_ARRAY),
        (&errors, Type::TEXT_ARRAY),
        (&failed.after, Type::FLOAT8_ARRAY),
        (&failed.permanent, Type::BOOL_ARRAY),
        (&failed.statuses, Type::INT4_ARRAY),
        (&claimant, Type::TEXT),
        (&failed.attempts, Type::INT4_ARRAY),
        (&failed.ambiguous, Type::BOOL_ARRAY),
        (&failed.alone, Type::BOOL_ARRAY),
        (&failed.batches, Type::TEXT_ARRAY),
    ];
    lost(
        &failed.ids,
        &client.query_typed(statement, &parameters).await?,
    )
}

/// A reason as any database can hold it.
fn fit(reason: &str, is_utf8: bool) -> String {
    let known = |c: char| if is_utf8 || c.is_ascii() { c } else { '?' };
    reason.chars().filter(|&c| c != '\0').map(known).collect()
}

/// Gives mails back that were not tried.
pub async fn release(client: &Client, claimant: &str, released: &Released) -> Result<(), Failure> {
    if released.ids.is_empty() {
        return Ok(());
    }
    let statement = include_str!("../../../../sql/queries/settle_released.sql");
    let parameters: [Parameter<'_>; 3] = [
        (&released.ids, Type::INT8_ARRAY),
        (&claimant, Type::TEXT),
        (&released.attempts, Type::INT4_ARRAY),
    ];
    client.execute_typed(statement, &parameters).await?;
    Ok(())
}

/// Moves due mail to this transport from those that have been paused for long enough.
async fn fall_back(client: &Client, wanted: Option<&Claim<'_>>) -> Result<(), Failure> {
    let Some(wanted) = wanted.filter(|wanted| !wanted.paused.is_empty()) else {
        return Ok(());
    };
    let paused = wanted.paused.iter();
    let names: Vec<&str> = paused.clone().map(|(name, _)| &**name).collect();
    let seconds: Vec<f64> = paused.map(|(_, since)| since.as_secs_f64()).collect();
    let limit = integer(wanted.appetite.mails);
    let statement = include_str!("../../../../sql/queries/fall_back.sql");
    let parameters: [Parameter<'_>; 4] = [
        (&wanted.transport, Type::TEXT),
        (&names, Type::TEXT_ARRAY),
        (&seconds, Type::FLOAT8_ARRAY),
        (&limit, Type::INT4),
    ];
    client.execute_typed(statement, &parameters).await?;
    Ok(())
}

async fn claim(
    client: &Client,
    claimant: &str,
    wanted: Option<&Claim<'_>>,
) -> Result<Option<Taken>, Failure> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let limit = integer(wanted.appetite.mails);
    let transports = vec![wanted.transport];
    let parameters: [Parameter<'_>; 3] = [
        (&limit, Type::INT4),
        (&claimant, Type::TEXT),
        (&transports, Type::TEXT_ARRAY),
    ];
    let statement = include_str!("../../../../sql/queries/claim_mail.sql");
    let rows = client.query_typed_raw(statement, parameters).await?;
    let mut rows = pin!(rows);
    let mut room = wanted.appetite.bytes;
    let (mut claimed, mut rest) = (Claimed::default(), Settlements::default());
    // One after the other: what does not fit is in memory while it is looked at, and no longer.
    while let Some(row) = rows.try_next().await? {
        let size = row::size(&row)?;
        if size > room && !claimed.mails.is_empty() {
            rest.released(row::claim(&row)?);
            room = 0;
            continue;
        }
        room = room.saturating_sub(size);
        match row::mail(&row, size)? {
            Ok(mail) => claimed.mails.push(mail),
            Err(column) => rest.failed(row::claim(&row)?, row::unreadable(column)),
        }
    }
    // There may be more behind those that ended here, too.
    claimed.surplus = rest.len();
    Ok(Some(Taken { claimed, rest }))
}

async fn ask_budgets(
    client: &Client,
    wanted: Option<&Claim<'_>>,
) -> Result<Option<Budget>, Failure> {
    if wanted.is_none_or(|wanted| !wanted.appetite.budgeted) {
        return Ok(None);
    }
    let rows = client
        .query_typed(include_str!("../../sql/budget.sql"), &[])
        .await?;
    let Some(row) = rows.first() else {
        return Ok(Some(Budget::None));
    };
    let (room, frees_in): (Option<i64>, Option<f64>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Some(match (room, frees_in) {
        (None, _) => Budget::None,
        (Some(0), Some(wait)) => {
            Budget::SpentFor(Duration::try_from_secs_f64(wait).unwrap_or_default())
        }
        (Some(_), _) => Budget::Left,
    }))
}

fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
