//! Where a session's scans start: what the cursors of `pending` and `outbox` share. Pure.
//!
//! Rows that were taken stay in an index until vacuum may remove them. So a scan starts where the last one ended, and
//! at the beginning only as often as a budget allows.

#![forbid(unsafe_code)]

pub mod sweep;
pub mod trail;
