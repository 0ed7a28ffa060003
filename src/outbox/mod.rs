//! `outbox`: the locks of a claim, addresses and templates.
//!
//! | module | owns |
//! |---|---|
//! | `attachments` | the SQL functions that judge attachments |
//! | `claims` | the session's name, the announcement of a claim, and the count of rows that refuse a change |
//! | `locks` | the locks that let one claimant at a time claim a group, and one session count budgets |
//! | `ended` | warnings about mail that ended without a report by a claimant |
//! | `judge` | the SQL functions that read lists of addresses and judge messages |
//! | `compose` | the SQL functions for templates, and for control characters |

#![forbid(unsafe_code)]

mod attachments;
mod claims;
mod compose;
mod ended;
mod judge;
mod locks;
