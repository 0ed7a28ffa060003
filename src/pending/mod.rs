//! `pending`: what a statement reads in `jobs`.

#![forbid(unsafe_code)]

mod first_read;
