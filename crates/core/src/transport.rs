//! Providers, and speaking to them.
//!
//! | module | owns |
//! |---|---|
//! | [`providers`] | how each provider is spoken to (pure) |
//! | [`http`] | one request and its answer |
//! | [`plain`] | HTML to plain text (pure) |
//! | [`tls`] | whose certificates count |
//! | `names` | looking names up |
//! | [`network`] | which addresses may be dialled (pure) |
//! | [`credentials`] | the file with what a provider knows its customer by |
//! | `calendar` | times as providers write them (pure) |

mod calendar;
pub mod credentials;
pub mod http;
mod names;
pub mod network;
pub mod plain;
pub mod providers;
pub mod tls;
