//! Tier 1: what needs the library inside a transaction. Compiled with the feature `pg_test` only.
//!
//! Each function of schema `tests` is a test that fails by raising. `tests/pg_test.rs` calls each in a session
//! and a transaction of its own, which it rolls back. Nothing here may rely on another one having run.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod key_file;
mod pending;
mod random;
mod settings;

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;

pub fn one<T: FromDatum + IntoDatum>(query: &str) -> T {
    Spi::get_one(query).unwrap().expect("a value, not NULL")
}

/// The SQLSTATE that a statement ends with, "00000" when it succeeds. What it did is undone only if it
/// fails.
pub fn sqlstate(statement: &str) -> String {
    refusal(statement).0
}

/// SQLSTATE and message of a statement's failure. PL/pgSQL catches it, in a subtransaction of its own.
pub fn refusal(statement: &str) -> (String, String) {
    Spi::run(
        "CREATE OR REPLACE FUNCTION pg_temp.refusal(statement text, OUT state text, OUT message text)
         LANGUAGE plpgsql AS $$
         BEGIN
             EXECUTE statement;
             state := '00000';
             message := '';
         EXCEPTION WHEN OTHERS THEN
             state := SQLSTATE;
             message := SQLERRM;
         END;
         $$",
    )
    .unwrap();
    let found: (Option<String>, Option<String>) = Spi::get_two_with_args(
        "SELECT state, message FROM pg_temp.refusal($1)",
        &[statement.into()],
    )
    .unwrap();
    (found.0.unwrap(), found.1.unwrap())
}

/// Changes a setting until the end of the transaction.
pub fn set(name: &str, value: &str) {
    let arguments: [DatumWithOid<'_>; 2] = [name.into(), value.into()];
    Spi::run_with_args("SELECT set_config($1, $2, true)", &arguments).unwrap();
}
