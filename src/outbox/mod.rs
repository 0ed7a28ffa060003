//! `outbox`: scans for mail that is due or claimed, the locks of a claim, addresses and templates.
//!
//! | module | owns |
//! |---|---|
//! | `due` | where a scan for due mail starts |
//! | `fallback` | where the search goes on for mail of a paused transport |
//! | `upkeep` | where a scan of expired leases, of requests or of rows to purge starts |
//! | `locks` | one claim a group; one session at a time that counts budgets |
//! | `bad_rows` | whether rows are changed one at a time |
//! | `ended` | warnings of mail that ended and that no claimant reported |
//! | `compose` | addresses and templates as SQL sees them |

#![forbid(unsafe_code)]

mod bad_rows;
mod compose;
mod due;
mod ended;
mod fallback;
mod locks;
mod upkeep;
