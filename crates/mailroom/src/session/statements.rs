//! The statements of a transaction that settles and claims.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use mailroom_core::deliver::exchange::{BudgetState, Claimed};
use mailroom_core::deliver::files::Files;
use mailroom_core::deliver::mail::{Claim, Mail};
use mailroom_core::deliver::settlements::{
    FailedAttempt, FailedMail, SentMail, Settlements, column,
};
use mailroom_core::deliver::store::ClaimRequest;
use mailroom_core::row::ReadError;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::Parameter;
use super::row::ClaimedRow;
use crate::database_error::DatabaseError;

/// The result of a claim.
pub struct Taken {
    pub claimed: Claimed,
    /// Claims that did not fit, and mails that cannot be read: to be settled after the claim.
    pub rest: Settlements,
}

/// The ids that the statement did not return.
fn lost(ids: &[i64], rows: &[Row]) -> Result<Vec<i64>, DatabaseError> {
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

pub async fn settle_sent(
    client: &Client,
    claimant: &str,
    sent: &[SentMail],
) -> Result<Vec<i64>, DatabaseError> {
    if sent.is_empty() {
        return Ok(Vec::new());
    }
    let ids = column(sent, |one| one.claim.id);
    let statement = include_str!("../../../../sql/queries/settle_sent.sql");
    let parameters: [Parameter<'_>; 5] = [
        (&ids, Type::INT8_ARRAY),
        (
            &column(sent, |one| one.provider_id.as_deref()),
            Type::TEXT_ARRAY,
        ),
        (&claimant, Type::TEXT),
        (&column(sent, |one| one.claim.attempts), Type::INT4_ARRAY),
        (
            &column(sent, |one| one.refused.as_deref()),
            Type::TEXT_ARRAY,
        ),
    ];
    lost(&ids, &client.query_typed(statement, &parameters).await?)
}

/// Settles failed attempts; returns the ids of the mails whose claims had been lost.
pub async fn settle_failed(
    client: &Client,
    claimant: &str,
    failed: &[FailedMail],
    is_utf8: bool,
) -> Result<Vec<i64>, DatabaseError> {
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let ids = column(failed, |one| one.claim.id);
    let attempts = column(failed, |one| &one.attempt);
    let errors = column(&attempts, |attempt| fit(&attempt.reason, is_utf8));
    let waits = column(&attempts, |attempt| {
        attempt.retry_after.map(|wait| wait.as_secs_f64())
    });
    let statuses = column(&attempts, |attempt| attempt.status.map(i32::from));
    let statement = include_str!("../../../../sql/queries/settle_failed.sql");
    let parameters: [Parameter<'_>; 11] = [
        (&ids, Type::INT8_ARRAY),
        (&errors, Type::TEXT_ARRAY),
        (&waits, Type::FLOAT8_ARRAY),
        (
            &column(&attempts, |attempt| attempt.permanent),
            Type::BOOL_ARRAY,
        ),
        (&statuses, Type::INT4_ARRAY),
        (&claimant, Type::TEXT),
        (&column(failed, |one| one.claim.attempts), Type::INT4_ARRAY),
        (
            &column(&attempts, |attempt| attempt.is_ambiguous()),
            Type::BOOL_ARRAY,
        ),
        (
            &column(&attempts, |attempt| attempt.is_alone()),
            Type::BOOL_ARRAY,
        ),
        (
            &column(&attempts, |attempt| attempt.batch.as_deref()),
            Type::TEXT_ARRAY,
        ),
        (
            &column(&attempts, |attempt| attempt.recipient_refused),
            Type::BOOL_ARRAY,
        ),
    ];
    lost(&ids, &client.query_typed(statement, &parameters).await?)
}

/// The reason in characters that the database can store.
fn fit(reason: &str, is_utf8: bool) -> String {
    let known = |c: char| if is_utf8 || c.is_ascii() { c } else { '?' };
    reason.chars().filter(|&c| c != '\0').map(known).collect()
}

/// Releases claims of mails that were not attempted.
pub async fn release(
    client: &Client,
    claimant: &str,
    released: &[Claim],
) -> Result<(), DatabaseError> {
    if released.is_empty() {
        return Ok(());
    }
    let statement = include_str!("../../../../sql/queries/settle_released.sql");
    let parameters: [Parameter<'_>; 3] = [
        (&column(released, |claim| claim.id), Type::INT8_ARRAY),
        (&claimant, Type::TEXT),
        (&column(released, |claim| claim.attempts), Type::INT4_ARRAY),
    ];
    client.execute_typed(statement, &parameters).await?;
    Ok(())
}

/// Moves due mail to this transport from transports that have been paused for long enough.
pub async fn fall_back(
    client: &Client,
    wanted: Option<&ClaimRequest<'_>>,
) -> Result<(), DatabaseError> {
    let Some(wanted) = wanted.filter(|wanted| !wanted.paused.is_empty()) else {
        return Ok(());
    };
    let paused = wanted.paused.iter();
    let names: Vec<&str> = paused.clone().map(|(name, _)| &**name).collect();
    let seconds: Vec<f64> = paused.map(|(_, since)| since.as_secs_f64()).collect();
    let limit = integer(wanted.limit.mails);
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

pub async fn claim(
    client: &Client,
    claimant: &str,
    wanted: Option<&ClaimRequest<'_>>,
) -> Result<Option<Taken>, DatabaseError> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let limit = integer(wanted.limit.mails);
    let transports = vec![wanted.transport];
    let parameters: [Parameter<'_>; 4] = [
        (&limit, Type::INT4),
        (&claimant, Type::TEXT),
        (&transports, Type::TEXT_ARRAY),
        (&wanted.lease.as_secs_f64(), Type::FLOAT8),
    ];
    let statement = include_str!("../../../../sql/queries/claim_mail.sql");
    let rows = client.query_typed_raw(statement, parameters).await?;
    let mut rows = pin!(rows);
    let mut room = wanted.limit.bytes;
    let (mut claimed, mut rest) = (Claimed::default(), Settlements::default());
    // One row at a time: contents that do not fit are in memory only while the row is read.
    while let Some(row) = rows.try_next().await? {
        let row = ClaimedRow(row);
        let size = Mail::size(&row)?;
        if size > room && !claimed.mails.is_empty() {
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
            Err(ReadError::Row(error)) => return Err(error),
        }
    }
    // There may be more mail behind those that were released or ended here.
    claimed.surplus = rest.len();
    Ok(Some(Taken { claimed, rest }))
}

/// Reads the files of these mails.
pub async fn read_files(
    client: &Client,
    mails: &[i64],
    files: &mut Files,
) -> Result<(), DatabaseError> {
    let statement = include_str!("../../../../sql/queries/attachments.sql");
    let parameters: [Parameter<'_>; 1] = [(&mails, Type::INT8_ARRAY)];
    for row in client.query_typed(statement, &parameters).await? {
        files.read(&ClaimedRow(row))?;
    }
    Ok(())
}

pub async fn ask_budgets(
    client: &Client,
    wanted: Option<&ClaimRequest<'_>>,
) -> Result<Option<BudgetState>, DatabaseError> {
    if wanted.is_none_or(|wanted| !wanted.limit.check_budgets) {
        return Ok(None);
    }
    let rows = client
        .query_typed(include_str!("../../sql/budget.sql"), &[])
        .await?;
    let Some(row) = rows.first() else {
        return Ok(Some(BudgetState::Unlimited));
    };
    let (room, frees_in): (Option<i64>, Option<f64>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Some(match (room, frees_in) {
        (None, _) => BudgetState::Unlimited,
        (Some(0), Some(wait)) => {
            BudgetState::SpentFor(Duration::try_from_secs_f64(wait).unwrap_or_default())
        }
        (Some(_), _) => BudgetState::Available,
    }))
}

fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
