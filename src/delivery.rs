//! Delivering the outbox from inside the server: what `mailroom_core::deliver` needs of it.
//!
//! | module | owns |
//! |---|---|
//! | [`route`] | the settings, made into a way to send |
//! | [`report`] | what people are told of it, in shared memory |

pub mod report;
pub mod route;
