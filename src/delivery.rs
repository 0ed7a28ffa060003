//! Delivering the outbox over HTTP from inside the server.

mod calendar;
pub mod credentials;
pub mod message;
pub mod providers;
