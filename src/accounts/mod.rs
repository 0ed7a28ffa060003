//! Accounts: what an email and a login may be, and the case in which they are stored and compared.

#![forbid(unsafe_code)]

pub mod lower_case;
mod rules;
