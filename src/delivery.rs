//! Delivering the outbox over HTTP from inside the server.
//!
//! | module | owns |
//! |---|---|
//! | [`message`] | a mail on its way (pure) |
//! | [`providers`] | how each provider is spoken to (pure) |
//! | [`engine`] | the thread that sends, as seen by the worker |
//! | `dispatch` | what that thread does |
//! | [`slots`] | how many requests may be under way (pure) |
//! | [`http`] | one request and its answer |
//! | `names` | looking names up |
//! | [`guard`] | which addresses may be dialled (pure) |
//! | [`credentials`] | the file with what a provider knows its customer by |
//! | `calendar` | times as providers write them (pure) |
//! | [`route`] | the settings, made into a way to send |
//! | [`settlements`] | what is to be told to the outbox (pure) |
//! | [`report`] | what people are told of it, in shared memory |
//! | [`pace`] | how many messages may go now (pure) |
//! | [`bucket`] | that, for all workers of the server, in shared memory |
//! | [`channel`] | whether the provider is to be asked at all just now (pure) |
//! | [`sharing`] | whether mails may share requests just now (pure) |

pub mod bucket;
mod calendar;
pub mod channel;
pub mod credentials;
mod dispatch;
pub mod engine;
pub mod guard;
pub mod http;
pub mod message;
mod names;
pub mod pace;
pub mod providers;
pub mod report;
pub mod route;
pub mod settlements;
pub mod sharing;
pub mod slots;
