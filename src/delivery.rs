//! Delivering the outbox over HTTP from inside the server.

pub mod guard;
pub mod message;
pub mod providers;
