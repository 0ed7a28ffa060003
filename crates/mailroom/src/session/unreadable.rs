//! Mail that the server cannot turn into UTF-8. A claim fails as a whole because of one such mail, which is looked for
//! and ended, so that it keeps no other back (I8).

use mailroom_core::deliver::mail::Claim;
use mailroom_core::deliver::settlements::Settlements;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{Parameter, Session, outbox, row};
use crate::failure::Failure;

/// What is no character in its encoding, or none in UTF-8.
const OF_ENCODING: [&str; 2] = ["22021", "22P05"];

/// Whether a mail that was to be read may be at fault.
pub fn is_unreadable(failure: &Failure) -> bool {
    OF_ENCODING.contains(&failure.sqlstate())
}

/// Ends the mail that is claimed next, if it cannot be read; returns whether it could not.
///
/// # Errors
/// Nothing of it has happened.
pub fn end_next(session: &mut Session, claimant: &str, transport: &str) -> Result<bool, Failure> {
    session.sequence(async |client| {
        let Some(claim) = claim_one(client, claimant, transport).await? else {
            return Ok(false);
        };
        client.batch_execute("SAVEPOINT contents").await?;
        let parameters: [Parameter<'_>; 1] = [(&claim.id, Type::INT8)];
        let read = client
            .query_typed(include_str!("../../sql/contents.sql"), &parameters)
            .await
            .map_err(Failure::from);
        match read {
            // It is another one, which comes with the next claim.
            Ok(_) => Ok(false),
            Err(failure) if is_unreadable(&failure) => {
                client
                    .batch_execute("ROLLBACK TO SAVEPOINT contents")
                    .await?;
                let mut ended = Settlements::default();
                ended.failed(claim, row::unreadable("it"));
                outbox::settle_failed(client, claimant, &ended.failed, false).await?;
                Ok(true)
            }
            Err(failure) => Err(failure),
        }
    })
}

async fn claim_one(
    client: &Client,
    claimant: &str,
    transport: &str,
) -> Result<Option<Claim>, Failure> {
    let transports = vec![transport];
    let parameters: [Parameter<'_>; 2] = [(&claimant, Type::TEXT), (&transports, Type::TEXT_ARRAY)];
    let rows = client
        .query_typed(include_str!("../../sql/claim_one.sql"), &parameters)
        .await?;
    rows.first().map(row::claim).transpose()
}
