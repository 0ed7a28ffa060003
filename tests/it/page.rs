//! `mailroom serve` (in MAILROOM_SEND): who gets in, what each role sees and does, and what strangers can make of it.

mod acts;
mod acts_on_more;
mod answers;
mod attempts;
mod csv;
mod databases;
mod failures;
mod hostile;
mod log_in;
mod outages;
mod proxy;
mod requests;
mod roles;
mod scene;
mod secrets;
mod suppressions;
mod tls;
