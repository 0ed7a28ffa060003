//! Transports: providers and relays, and sending to them.
//!
//! | module | owns |
//! |---|---|
//! | [`capabilities`] | the properties of a transport by which mail is batched and repeated (pure) |
//! | [`rate`] | the rate limit of a provider (pure) |
//! | [`config`] | the transports file |
//! | [`credentials`] | secrets for a provider |
//! | [`invalid`] | an invalid setting (pure) |
//! | [`providers`] | requests to each provider, and what its responses mean (pure) |
//! | [`http`] | one HTTP request and its response |
//! | [`single`] | transports that take one message at a time: the following three |
//! | [`smtp`] | sending through an SMTP relay |
//! | [`file`](mod@file) | writing messages to a directory |
//! | [`log`] | a message as a line for the log (pure) |
//! | [`delivered`] | the result of one delivery by these |
//! | `mime` | a message in the format of RFC 5322 (pure) |
//! | [`plain`] | HTML to plain text (pure) |
//! | [`tls`] | which certificates are trusted, and what to change if the handshake fails |
//! | `resolver` | DNS |
//! | [`causes`](mod@causes) | the causes of an error (pure) |
//! | [`connect`] | connecting to a host that has several addresses |
//! | [`network_policy`] | which addresses may be connected to (pure) |
//! | `time_limit` | how long a request may take (pure) |
//! | `encode` | text in headers as encoded words (pure) |
//! | `dates` | times in the formats of providers (pure) |

pub mod capabilities;
pub mod causes;
pub mod config;
pub mod connect;
pub mod credentials;
pub(crate) mod dates;
pub mod delivered;
pub(crate) mod encode;
pub mod file;
pub mod http;
pub mod invalid;
pub mod log;
mod mime;
pub mod network_policy;
pub mod plain;
pub mod providers;
pub mod rate;
mod resolver;
pub mod single;
pub mod smtp;
#[cfg(test)]
mod tests;
mod time_limit;
pub mod tls;
