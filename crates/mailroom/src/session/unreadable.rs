//! Mail that the server cannot convert to UTF-8. One such mail makes the whole claim fail, so it is searched for and
//! ended, and does not keep others from being sent (I8).

use mailroom_core::deliver::mail::Claim;
use mailroom_core::deliver::settlements::{FailedAttempt, FailedMail, Settlements};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::row::ClaimedRow;
use super::{Parameter, Session, statements};
use crate::database_error::DatabaseError;

/// SQLSTATEs for invalid characters: in the database's encoding, or without equivalent in UTF-8.
const OF_ENCODING: [&str; 2] = ["22021", "22P05"];

/// Number of mails that one search reads.
const MAILS: i32 = 64;

/// Whether an unreadable mail may have caused the error.
pub fn is_unreadable(failure: &DatabaseError) -> bool {
    OF_ENCODING.contains(&failure.sqlstate())
}

/// Reads the mails that would be claimed next, one by one. Ends those that cannot be read, releases the others, and
/// returns whether it ended any.
///
/// # Errors
/// As [`Session::call`].
pub fn end_next(
    session: &mut Session,
    claimant: &str,
    transport: &str,
) -> Result<bool, DatabaseError> {
    let contents = contents();
    session.sequence(async |client| {
        let mut settlements = Settlements::default();
        for claim in claim_some(client, claimant, transport).await? {
            client.batch_execute("SAVEPOINT contents").await?;
            let parameters: [Parameter<'_>; 2] = [(&claim.id, Type::INT8), (&claimant, Type::TEXT)];
            let read = client
                .query_typed(&contents, &parameters)
                .await
                .map_err(DatabaseError::from);
            client
                .batch_execute("ROLLBACK TO SAVEPOINT contents; RELEASE SAVEPOINT contents")
                .await?;
            match read {
                Ok(_) => settlements.released.push(claim),
                Err(failure) if is_unreadable(&failure) => {
                    let attempt = FailedAttempt::not_text("it");
                    settlements.failed.push(FailedMail { claim, attempt });
                }
                Err(failure) => return Err(failure),
            }
        }
        statements::settle_failed(client, claimant, &settlements.failed, false).await?;
        statements::release(client, claimant, &settlements.released).await?;
        Ok(!settlements.failed.is_empty())
    })
}

/// Reads of one mail that is already claimed what `claim_mail.sql` reads, and no other column.
fn contents() -> String {
    let claim = include_str!("../../../../sql/queries/claim_mail.sql");
    let columns = claim.find("\nFROM ").map_or(claim, |end| &claim[..end]);
    format!(
        "{columns}\nFROM outbox o \
         CROSS JOIN LATERAL _claim_rows(ARRAY[o.ctid], '{{}}'::tid[], $2, now(), interval '1 minute') c \
         WHERE o.id = $1"
    )
}

/// Claims the next mails without their contents.
async fn claim_some(
    client: &Client,
    claimant: &str,
    transport: &str,
) -> Result<Vec<Claim>, DatabaseError> {
    let transports = vec![transport];
    let parameters: [Parameter<'_>; 3] = [
        (&MAILS, Type::INT4),
        (&claimant, Type::TEXT),
        (&transports, Type::TEXT_ARRAY),
    ];
    let rows = client
        .query_typed(include_str!("../../sql/claim_ids.sql"), &parameters)
        .await?;
    let claims = rows.into_iter().map(|row| Claim::read(&ClaimedRow(row)));
    claims.collect()
}
