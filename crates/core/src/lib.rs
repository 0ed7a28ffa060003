//! What mailroom needs no database for.
//!
//! | module | owns |
//! |---|---|
//! | [`token`] | the wire format of links: sign, parse, verify; and the key file |
//! | [`secret_file`] | reading files with secrets |
//! | [`address`] | what a mail address may look like |
//! | [`template`] | checking and rendering templates, and those that come with us |
//! | [`message`] | a mail on its way |
//! | [`batching`] | when a batch goes |
//! | [`backoff`] | failures in a row: when to try again, and when to say so |
//! | [`deliver`] | which mail is sent when, and what becomes of it |
//! | [`transport`] | providers, and speaking to them |

#![forbid(unsafe_code)]

pub mod address;
pub mod backoff;
pub mod batching;
pub mod deliver;
pub mod message;
pub mod secret_file;
pub mod template;
pub mod token;
pub mod transport;
