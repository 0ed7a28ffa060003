//! Tokens: their secrets and codes, the key file that signs them, and the links that contain them.
//!
//! | module | owns |
//! |---|---|
//! | `committed` | open tokens that this transaction's snapshot does not contain |
//! | `random` | secrets, codes and message ids |
//! | `rules` | the rules for a row of `tokens` |
//! | `key_file` | the keys in force, cached in each process; creating and rotating a key |
//! | `errors` | errors of signing and verifying, as clients see them |
//! | `signing` | the SQL functions that sign and verify |
//! | `links` | the secrets in token mail, and reading them back |
//! | `unsubscribe` | links that unsubscribe from a list |

#![forbid(unsafe_code)]

mod committed;
mod errors;
mod key_file;
mod links;
mod random;
mod rules;
mod signing;
mod unsubscribe;
