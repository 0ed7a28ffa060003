//! The server's interfaces, as safe functions: the only folder with `unsafe`.
//!
//! Each file wraps one part of the server and says once what its calls ask of their callers. Errors of the server are
//! passed on as panics, which pgrx turns back into errors at the boundary (`#[pg_guard]`); a frame that the server may
//! jump over owns nothing. What differs between server versions is in [`version`] alone.
//!
//! Unless a function says otherwise it is called on the process's main thread, in a transaction, as every SQL function
//! is.

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
