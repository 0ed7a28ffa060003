//! `outbox`: scans for mail that is due or claimed, the locks of a claim, addresses and templates.
//!
//! | module | owns |
//! |---|---|
//! | `due` | where a scan for due mail starts |
//! | `fallback` | where a search for mail of a paused transport continues |
//! | `upkeep` | where a scan for expired leases, requests or rows to purge starts |
//! | `locks` | the locks that let one claimant at a time claim a group, and one session count budgets |
//! | `bad_rows` | whether rows are changed one at a time |
//! | `ended` | warnings about mail that ended without a report by a claimant |
//! | `judge` | the SQL functions that read lists of addresses and judge messages |
//! | `compose` | the SQL functions for templates, and for the address of a redirection |

#![forbid(unsafe_code)]

mod bad_rows;
mod compose;
mod due;
mod ended;
mod fallback;
mod judge;
mod locks;
mod upkeep;
