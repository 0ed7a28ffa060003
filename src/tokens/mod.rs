//! Tokens: their secrets and codes, the key file they are signed with, and the links that carry them.
//!
//! | module | owns |
//! |---|---|
//! | `committed` | open tokens that this transaction's snapshot does not contain |
//! | `random` | secrets, codes and message ids |
//! | `rules` | what a row of `tokens` may hold |
//! | `key_file` | the keys in force, as this process has them; making and replacing one |
//! | `errors` | why nothing was signed or verified, as clients see it |
//! | `signing` | signing and verifying, as SQL sees them |
//! | `links` | what the mail of a token carries, and reading it back |

#![forbid(unsafe_code)]

mod committed;
mod errors;
mod key_file;
mod links;
mod random;
mod rules;
mod signing;
