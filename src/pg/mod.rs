//! The server's interfaces, as safe functions: the only folder with `unsafe`.
//!
//! Each file wraps one part of the server and states once what its calls require of their callers. A server error is
//! passed on as a panic, which pgrx turns back into an error at the boundary (`#[pg_guard]`). A frame that the server
//! may jump over owns nothing. All differences between server versions are in [`version`].
//!
//! Unless its comment says otherwise, a function is called on the process's main thread in a transaction, as every SQL
//! function is.

pub mod catalog;
pub mod encoding;
pub mod entry;
pub mod hooks;
pub mod locks;
pub mod log;
pub mod notify;
pub mod options;
pub mod process;
pub mod random;
pub mod shared_memory;
pub mod signals;
pub mod transaction;
pub mod tuple;
pub mod version;
