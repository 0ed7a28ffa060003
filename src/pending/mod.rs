//! `pending`: where a scan for waiting tokens starts.

#![forbid(unsafe_code)]

mod cursor;
