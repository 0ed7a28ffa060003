//! `pending`: where a scan for tokens that wait starts.

#![forbid(unsafe_code)]

mod cursor;
