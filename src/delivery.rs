//! Delivering the outbox over HTTP from inside the server.

pub mod message;
pub mod providers;
