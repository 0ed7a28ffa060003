//! Settling and claiming mail: one transaction for both, so that a round costs one commit.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::{SpiClient, SpiHeapTupleData, SpiTupleTable};
use serde_json::value::RawValue;

use super::{Failure, Session, integer, prepared, required, stop_requested, transaction};
use crate::encoding::{Text, Texts};
use crate::server;
use mailroom_core::deliver::exchange::{BudgetState, Claimed};
use mailroom_core::deliver::mail::{Claim, Mail};
use mailroom_core::deliver::settlements::{FailedAttempt, Settlements};
use mailroom_core::deliver::store::{ClaimRequest, ErrorKind, Store, StoreError};
use mailroom_core::message::Message;

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
            // Nor must a failover forget what is sent and was sent, if the server waits for standbys: mail would go
            // out twice, and out of a budget that is spent.
            // Nothing more is sent once it is told to stop, and a stop does not wait for a standby.
            if !stop_requested() {
                commit_as_configured();
            }
            if settlements.has_attempts() {
                // What was sent must not be forgotten in a crash: it would go out twice.
                // SAFETY: in a transaction; sets a flag that lasts as long as it.
                unsafe { pg_sys::ForceSyncCommit() };
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
        // The error of a statement may come of that.
        done.map_err(|failure| match self.is_gone() {
            true => Failure::ExtensionGone,
            false => failure,
        })
    }

    fn extend(&mut self, claimant: &str, ids: &[i64]) -> Result<Vec<i64>, Failure> {
        transaction(Some(self.collector), || {
            self.check_extension()?;
            Spi::connect_mut(|client| {
                // Made here, because looking up the type of an array takes a transaction.
                let rows = run(
                    client,
                    include_str!("../../../sql/queries/extend_claims.sql"),
                    &[ids.to_vec().into(), claimant.into()],
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
        self.call(
            include_str!("../../../sql/queries/publish_transports.sql"),
            &[
                deliverer.into(),
                Text(Some(transports)).into(),
                problem.map(|problem| Text(Some(problem))).into(),
            ],
            |_| Ok(()),
        )
    }
}

impl Session {
    /// Has the claims lapse that earlier workers of this database left, on this timeline.
    pub fn take_over(&self, timeline: &str) -> Result<(), Failure> {
        self.call(
            include_str!("../../../sql/queries/take_over.sql"),
            &[timeline.into()],
            |_| Ok(()),
        )
    }
}

impl StoreError for Failure {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ExtensionGone => ErrorKind::Gone,
            Self::Restoring => ErrorKind::Restoring,
            Self::Refused { .. } if self.is_row_at_fault() => ErrorKind::Row,
            Self::Refused { .. } => ErrorKind::Other,
        }
    }

    fn warn(&self, what: &str) {
        Failure::warn(self, what);
    }
}

/// Lets this transaction wait at its commit as others of the server do, and not as the worker's batches.
fn commit_as_configured() {
    // SAFETY: in a transaction, with which the setting ends; both strings are the server's or static, and copied.
    unsafe {
        pg_sys::set_config_option(
            c"synchronous_commit".as_ptr(),
            pg_sys::GetConfigOptionResetString(c"synchronous_commit".as_ptr()),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            0,
            false,
        );
    }
}

/// Runs a statement that is prepared once in this process: nothing is parsed and planned for each exchange.
fn run<'c>(
    client: &mut SpiClient<'c>,
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
) -> Result<SpiTupleTable<'c>, Failure> {
    let prepared = prepared(client, statement, arguments)?;
    Ok(client.update(prepared, None, arguments)?)
}

/// Those of the mails that are not among these.
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
    } = settlements;
    if !sent.ids.is_empty() {
        let rows = run(
            client,
            include_str!("../../../sql/queries/settle_sent.sql"),
            &[
                sent.ids.clone().into(),
                texts(sent.provider_ids.iter().cloned()).into(),
                claimant.into(),
                sent.attempts.clone().into(),
                texts(sent.refused.iter().cloned()).into(),
            ],
        )?;
        all_lost.extend(lost(&sent.ids, required(&rows.first(), 1)?));
    }
    if !failed.ids.is_empty() {
        let rows = run(
            client,
            include_str!("../../../sql/queries/settle_failed.sql"),
            &[
                failed.ids.clone().into(),
                texts(failed.errors.iter().cloned().map(Some)).into(),
                failed.retry_after.clone().into(),
                failed.permanent.clone().into(),
                failed.statuses.clone().into(),
                claimant.into(),
                failed.attempts.clone().into(),
                failed.ambiguous.clone().into(),
                failed.alone.clone().into(),
                texts(failed.batches.iter().cloned()).into(),
            ],
        )?;
        all_lost.extend(lost(&failed.ids, required(&rows.first(), 1)?));
    }
    if !released.ids.is_empty() {
        release(client, claimant, &released.ids, &released.attempts)?;
    }
    Ok(all_lost)
}

fn release(
    client: &mut SpiClient<'_>,
    claimant: &str,
    ids: &[i64],
    attempts: &[i32],
) -> Result<(), Failure> {
    run(
        client,
        include_str!("../../../sql/queries/settle_released.sql"),
        &[
            ids.to_vec().into(),
            claimant.into(),
            attempts.to_vec().into(),
        ],
    )?;
    Ok(())
}

/// Moves due mail to this transport from those that have been paused for long enough.
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
    let (mut ids, mut attempts) = (Vec::new(), Vec::new());
    let mut unreadable = Settlements::default();
    let rows = run(
        client,
        include_str!("../../../sql/queries/claim_mail.sql"),
        &[
            integer(limit.mails).into(),
            claimant.into(),
            vec![wanted.transport.to_owned()].into(),
        ],
    )?;
    for row in rows {
        let size: i64 = needed(&row, 3)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > room && !claimed.mails.is_empty() {
            // Its contents were not read yet: what does not fit costs no memory.
            ids.push(needed(&row, 1)?);
            attempts.push(needed(&row, 2)?);
            room = 0;
            continue;
        }
        room = room.saturating_sub(size);
        match read(&row, size)? {
            Ok(mail) => claimed.mails.push(mail),
            Err(column) => {
                let claim = Claim {
                    id: needed(&row, 1)?,
                    attempts: needed(&row, 2)?,
                };
                unreadable.failed(claim, not_in_encoding(column));
            }
        }
    }
    if !ids.is_empty() {
        release(client, claimant, &ids, &attempts)?;
    }
    if !unreadable.is_empty() {
        settle(client, claimant, &unreadable)?;
    }
    // There may be more behind those that ended here, too.
    claimed.surplus = ids.len() + unreadable.len();
    if limit.check_budgets && claimed.mails.len() + claimed.surplus < limit.mails as usize {
        claimed.budget = Some(ask_budgets(client)?);
    }
    Ok(claimed)
}

fn ask_budgets(client: &mut SpiClient<'_>) -> Result<BudgetState, Failure> {
    let rows = run(client, include_str!("../../../sql/queries/budget.sql"), &[])?;
    let row = rows.first();
    let room: Option<i64> = row.get(1)?;
    let frees_at: Option<pgrx::datum::TimestampWithTimeZone> = row.get(2)?;
    Ok(match (room, frees_at) {
        (None, _) => BudgetState::Unlimited,
        (Some(0), Some(end)) => {
            let micros = i64::from(end).saturating_sub(server::now()).max(0);
            BudgetState::SpentFor(Duration::from_micros(micros.unsigned_abs()))
        }
        (Some(_), _) => BudgetState::Available,
    })
}

/// Arguments of type text[].
fn texts(texts: impl Iterator<Item = Option<String>>) -> Vec<Option<Text>> {
    texts
        .map(|text| text.map(|text| Text(Some(text))))
        .collect()
}

/// Such a mail ends: what it says cannot be put into a request, now or ever.
fn not_in_encoding(column: &str) -> FailedAttempt {
    FailedAttempt {
        permanent: true,
        ..FailedAttempt::new(format!(
            "{column} holds bytes that are no characters in the database's encoding"
        ))
    }
}

/// The mail, or the column that holds what is no text.
fn read(row: &SpiHeapTupleData<'_>, size: usize) -> Result<Result<Mail, &'static str>, Failure> {
    let contents = match Contents::read(row)? {
        Ok(contents) => contents,
        Err(column) => return Ok(Err(column)),
    };
    let expires_at: Option<f64> = row.get(14)?;
    let mut message = Message {
        id: needed(row, 1)?,
        attempts: needed(row, 2)?,
        message_id: needed(row, 4)?,
        kind: contents.kind,
        recipients: contents.recipients,
        cc: contents.cc,
        bcc: contents.bcc,
        original_recipients: Vec::new(),
        subject: contents.subject,
        body_text: contents.body_text,
        body_html: contents.body_html,
        data: variables(contents.data)?,
        created_at: needed(row, 13)?,
    };
    if let Some(address) = contents.redirect_to {
        message.redirect(address);
    }
    Ok(Ok(Mail {
        message,
        expires_at: expires_at
            .map(|end| UNIX_EPOCH + Duration::try_from_secs_f64(end).unwrap_or_default()),
        size,
        ambiguous_alone: needed(row, 15)?,
        ambiguous_attempts: needed(row, 16)?,
        priority: needed(row, 17)?,
        send_at: needed(row, 18)?,
        group_key: contents.group_key,
        batch: row.get(20)?,
        alone: false,
    }))
}

/// What people wrote, in whatever encoding they keep.
struct Contents {
    kind: String,
    recipients: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    subject: String,
    body_text: Option<String>,
    body_html: Option<String>,
    data: String,
    group_key: Option<String>,
    redirect_to: Option<String>,
}

impl Contents {
    fn read(row: &SpiHeapTupleData<'_>) -> Result<Result<Self, &'static str>, Failure> {
        let kind: Text = needed(row, 5)?;
        let recipients: Texts = needed(row, 6)?;
        let cc: Texts = needed(row, 7)?;
        let bcc: Texts = needed(row, 8)?;
        let subject: Text = needed(row, 9)?;
        let body_text: Option<Text> = row.get(10)?;
        let body_html: Option<Text> = row.get(11)?;
        let data: Text = needed(row, 12)?;
        let group_key: Option<Text> = row.get(19)?;
        let redirect_to: Option<Text> = row.get(21)?;
        let body = |body: Option<Text>, name| body.map(|text| text.0.ok_or(name)).transpose();
        let read = || {
            Ok(Self {
                kind: kind.0.ok_or("kind")?,
                recipients: recipients.0.ok_or("recipients")?,
                cc: cc.0.ok_or("cc")?,
                bcc: bcc.0.ok_or("bcc")?,
                subject: subject.0.ok_or("subject")?,
                body_text: body(body_text, "body_text")?,
                body_html: body(body_html, "body_html")?,
                data: data.0.ok_or("data")?,
                group_key: body(group_key, "group_key")?,
                redirect_to: body(redirect_to, "mailroom.redirect_to")?,
            })
        };
        Ok(read())
    }
}

/// Text of jsonb, as it goes on to the provider.
fn variables(text: String) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(text).map_err(|_| {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "the data of a claimed mail is no JSON",
            None,
        )
    })
}

fn needed<T: FromDatum + IntoDatum>(
    row: &SpiHeapTupleData<'_>,
    column: usize,
) -> Result<T, Failure> {
    row.get(column)?.ok_or_else(|| {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &format!("column {column} of a claimed mail is null"),
            None,
        )
    })
}
