//! Third-party servers and libraries that delivery is tested against. Nothing here imitates a provider: this module
//! starts existing servers, asks them what they received, and lets receivers' libraries check it.
//!
//! `tests/run` installs them and names the directory in `MAILROOM_COUNTERPARTS`. All listen on a free port of loopback,
//! and end with the value that represents them or with the test program.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

pub mod aiosmtpd;
pub mod audit;
pub mod http;
pub mod judge;
pub mod maildev;
pub mod mails;
pub mod postfix;
pub mod process;
pub mod programs;
pub mod scene;
pub mod servers;
pub mod tls;
pub mod wiremock;

use programs::{home, program};
pub use programs::{module, node};
