//! Providers, and speaking to them.
//!
//! | module | owns |
//! |---|---|
//! | [`capabilities`] | what a transport can do with several messages, and with a repeated one (pure) |
//! | [`providers`] | how each provider is spoken to (pure) |
//! | [`http`] | one request and its answer |
//! | [`smtp`] | sending through an SMTP relay |
//! | [`file`](mod@file) | writing messages to a directory |
//! | [`log`] | a message as a line for the log (pure) |
//! | [`single`] | the three above as one: transports that take one message at a time |
//! | `mime` | a message in the format of RFC 5322 (pure) |
//! | [`plain`] | HTML to plain text (pure) |
//! | [`delivered`] | the result of one delivery |
//! | [`tls`] | whose certificates count |
//! | `names` | looking names up |
//! | [`network`] | which addresses may be dialled (pure) |
//! | [`invalid`] | an invalid setting (pure) |
//! | [`config`] | the transports file |
//! | [`credentials`] | what a provider knows its customer by |
//! | `calendar` | times as providers write them (pure) |

mod calendar;
pub mod capabilities;
pub mod config;
pub mod credentials;
pub mod delivered;
pub mod file;
pub mod http;
pub mod invalid;
pub mod log;
mod mime;
mod names;
pub mod network;
pub mod plain;
pub mod providers;
pub mod single;
pub mod smtp;
#[cfg(test)]
mod tests;
pub mod tls;
