//! Whether an error was caused by the row that was written or by its environment, judged by SQLSTATE.

use pgrx::prelude::*;

/// SQLSTATEs, or classes of them, of errors that would occur with every other row as well: connection, transaction
/// state, rollback, resources, locks, intervention, system, configuration, internal.
const OF_ALL_ROWS: [&str; 9] = ["08", "25", "40", "53", "55P03", "57", "58", "F0", "XX"];

/// Classes of errors that one row can cause, such as a policy or a trigger of the application that refuses it, and the
/// environment as well, such as a missing privilege: authorisation, access rule, limits, prerequisites.
const OF_EITHER: [&str; 4] = ["28", "42", "54", "55"];

fn is_among(sqlstate: &str, classes: &[&str]) -> bool {
    classes.iter().any(|class| sqlstate.starts_with(class))
}

/// Whether other rows may be changed after an error with this SQLSTATE.
pub fn may_pass_by(sqlstate: &str) -> bool {
    !is_among(sqlstate, &OF_ALL_ROWS)
}

/// Whether an error with this SQLSTATE is about the row that was written.
pub fn is_row_at_fault(sqlstate: &str) -> bool {
    may_pass_by(sqlstate) && !is_among(sqlstate, &OF_EITHER)
}

#[pg_extern(sql = false)]
fn _may_pass_by(code: &str) -> bool {
    may_pass_by(code)
}

#[pg_extern(sql = false)]
fn _is_row_at_fault(code: &str) -> bool {
    is_row_at_fault(code)
}

#[cfg(test)]
mod tests {
    use super::{is_row_at_fault, may_pass_by};

    #[test]
    fn constraints_and_values_are_the_row_and_the_rest_is_not() {
        for of_the_row in ["23505", "22P05", "23514", "P0001", "22023", "0A000"] {
            assert!(is_row_at_fault(of_the_row), "{of_the_row}");
            assert!(may_pass_by(of_the_row), "{of_the_row}");
        }
        for of_either in ["28000", "42501", "54000", "55000"] {
            assert!(!is_row_at_fault(of_either), "{of_either}");
            assert!(may_pass_by(of_either), "{of_either}");
        }
        for of_all in [
            "08006", "25006", "40001", "53100", "55P03", "57014", "58P01", "F0000", "XX000",
        ] {
            assert!(!is_row_at_fault(of_all), "{of_all}");
            assert!(!may_pass_by(of_all), "{of_all}");
        }
    }
}
