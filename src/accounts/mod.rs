//! Accounts: the rules for an email and a login, and the case in which they are stored and compared.

#![forbid(unsafe_code)]

pub mod lower_case;
mod rules;

pub use rules::key_of_address;
