//! `pending`: where a scan for waiting tokens starts, and what a statement reads in `jobs`.

#![forbid(unsafe_code)]

mod cursor;
mod first_read;
