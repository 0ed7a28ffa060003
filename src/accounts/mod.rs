//! Accounts: the rules for an email and a login, and the case in which they are stored and compared.

#![forbid(unsafe_code)]

pub mod lower_case;
pub mod rules;
