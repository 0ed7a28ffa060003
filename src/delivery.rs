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
//! | [`channel`] | whether the provider is to be asked at all just now (pure) |

pub mod channel;
mod dispatch;
pub mod engine;
pub mod guard;
pub mod http;
pub mod message;
mod names;
pub mod providers;
pub mod slots;
