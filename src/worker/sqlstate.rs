//! Whether an error was caused by the row that was written or by its environment, judged by SQLSTATE.

use pgrx::prelude::*;

/// SQLSTATE classes of errors that would also occur with the next row: connection, transaction state, authorisation,
/// rollback, access rule, resources, limits, prerequisites, intervention, system, configuration, internal.
const OF_THE_SURROUNDINGS: [&str; 12] = [
    "08", "25", "28", "40", "42", "53", "54", "55", "57", "58", "F0", "XX",
];

/// Whether an error with this SQLSTATE may have been caused by the row that was written.
pub fn is_row_at_fault(sqlstate: &str) -> bool {
    !OF_THE_SURROUNDINGS
        .iter()
        .any(|class| sqlstate.starts_with(class))
}

#[pg_extern(sql = false)]
fn _is_row_at_fault(code: &str) -> bool {
    is_row_at_fault(code)
}

#[cfg(test)]
mod tests {
    use super::is_row_at_fault;

    #[test]
    fn constraints_and_values_are_the_row_and_the_rest_is_not() {
        for of_the_row in ["23505", "22P05", "23514", "P0001", "22023", "0A000"] {
            assert!(is_row_at_fault(of_the_row), "{of_the_row}");
        }
        for of_the_rest in [
            "08006", "25006", "28000", "40001", "42501", "53100", "54000", "55P03", "57014",
            "58P01", "F0000", "XX000",
        ] {
            assert!(!is_row_at_fault(of_the_rest), "{of_the_rest}");
        }
    }
}
