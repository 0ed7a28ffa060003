//! This process among those of the server: who it is, what it waits for, how it ends.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::time::Duration;

use pgrx::prelude::*;

use super::version;

/// Whether this is the postmaster, loading shared_preload_libraries.
pub fn is_preloading() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Whether the server was started by pg_upgrade.
pub fn is_binary_upgrade() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Whether this server replays the WAL of another.
pub fn is_in_recovery() -> bool {
    // SAFETY: reads shared memory that every process is attached to.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The process id.
pub fn pid() -> i32 {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::MyProcPid }
}

/// The database that this process is connected to, or `InvalidOid`.
pub fn database() -> pg_sys::Oid {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::MyDatabaseId }
}

/// This process among all that the server ever had, as `%c` in log_line_prefix names it.
pub fn session_id() -> String {
    // SAFETY: a plain variable of this process, set at its start.
    let began = unsafe { pg_sys::MyStartTime };
    format!("{began:x}.{:x}", pid())
}

/// The data directory.
pub fn data_directory() -> &'static CStr {
    // SAFETY: set before any library is loaded, NUL-terminated, and never changed.
    unsafe { CStr::from_ptr(pg_sys::DataDir) }
}

/// The timeline that this server writes, in hexadecimal as in the names of WAL files. Outside recovery only.
pub fn timeline() -> String {
    // SAFETY: reads shared memory; a worker runs only when recovery is over.
    let timeline = unsafe { pg_sys::GetWALInsertionTimeLine() };
    format!("{timeline:X}")
}

/// Now, in microseconds since 2000-01-01.
pub fn now() -> i64 {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// Pages of tables and indexes that this process has read so far, from shared buffers or from disk.
pub fn pages_read() -> i64 {
    // SAFETY: counters of this process, which only it writes.
    unsafe { pg_sys::pgBufferUsage.shared_blks_hit + pg_sys::pgBufferUsage.shared_blks_read }
}

/// Sets the latch of the process at this index of the server's array; does nothing for a negative one.
pub fn set_latch_of(proc_number: i32) {
    if proc_number >= 0 {
        // SAFETY: the index came from `own_proc_number` of some process. If that process has ended meanwhile, the latch
        // belongs to the process that has the entry now, and every process tolerates a latch set without a reason.
        unsafe { pg_sys::ProcSendSignal(proc_number) };
    }
}

/// Whether a process of this server has this id.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: looks the number up in the server's array of processes, and keeps nothing of it.
    unsafe { !pg_sys::BackendPidGetProc(pid).is_null() }
}

/// Asks a process of this server to end, as pg_terminate_backend does; does nothing for 0.
pub fn terminate(pid: i32) {
    if pid > 0 && is_alive(pid) {
        // SAFETY: sends a signal; the process may be gone by now, which is as good.
        let _ = unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Waits until this process's latch is set or `timeout` has passed, and lets pending interrupts be served.
/// Ends the process at once when the postmaster is gone.
pub fn wait(timeout: Duration) {
    wait_for(timeout, None);
}

/// As [`wait`], and until this socket can be read, if one is given.
pub fn wait_for(timeout: Duration, socket: Option<RawFd>) {
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    if socket.is_some() {
        events |= pg_sys::WL_SOCKET_READABLE;
    }
    // The server counts milliseconds in a C int.
    let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
    let millis = millis.min(i64::from(i32::MAX));
    // SAFETY: MyLatch is this process's own, set up before the library's code runs in it; the socket is open.
    unsafe {
        pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            events as i32,
            socket.unwrap_or(-1),
            millis,
            version::wait_event(),
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pg_sys::check_for_interrupts!();
}

/// Starts a thread that gets none of this process's signals, whose handlers belong to the server's own thread.
///
/// # Errors
/// When the system has none to spare.
pub fn spawn_without_signals(
    name: &str,
    body: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    // SAFETY: plain memory for the two sets, filled by the calls; a new thread has the mask of the one that
    // starts it, and this thread gets its own back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut own: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut own) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const own, std::ptr::null_mut());
        thread
    }
}

/// Lets this process have `wanted` files open, if the system allows; returns how many it may have now.
pub fn allow_files(wanted: usize) -> usize {
    let wanted = wanted as libc::rlim_t;
    // SAFETY: plain memory, filled by the call.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 0;
        }
        if limit.rlim_cur < wanted {
            let more = libc::rlimit {
                rlim_cur: wanted.min(limit.rlim_max),
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more) == 0 {
                limit = more;
            }
        }
        usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
    }
}

/// Sends the statistics of this process's work that were held back so far. Outside a transaction.
pub fn report_statistics() {
    // SAFETY: main thread, no transaction open.
    unsafe { pg_sys::pgstat_report_stat(true) };
}

/// Ends this process. With status 1 the postmaster starts a background worker again, unless the server is going down.
pub fn exit(status: i32) {
    // SAFETY: runs the server's own callbacks; no destructor of ours matters beyond this point.
    unsafe { pg_sys::proc_exit(status) };
}

/// Runs this at the end of this process, before it leaves shared memory and while it still holds its locks.
pub fn before_exit(action: impl Fn() + 'static) {
    // SAFETY: a guarded function of the expected shape, with the argument that it expects.
    unsafe { pg_sys::before_shmem_exit(Some(run_at_exit), kept(Box::new(action))) };
}

/// Runs this at the end of this process, after its locks are released and while it can still wake another.
pub fn at_exit(action: impl Fn() + 'static) {
    // SAFETY: as above.
    unsafe { pg_sys::on_shmem_exit(Some(run_at_exit), kept(Box::new(action))) };
}

/// An action that stays in memory as long as the process, for [`run_at_exit`].
fn kept(action: Box<dyn Fn()>) -> pg_sys::Datum {
    pg_sys::Datum::from(Box::into_raw(Box::new(action)))
}

#[pg_guard]
unsafe extern "C-unwind" fn run_at_exit(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: made by `kept`, and never freed.
    let action = unsafe { &*argument.cast_mut_ptr::<Box<dyn Fn()>>() };
    action();
}
