//! Delivering the outbox over HTTP from inside the server.

pub mod bucket;
mod calendar;
pub mod credentials;
pub mod message;
pub mod pace;
pub mod providers;
