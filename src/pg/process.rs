//! This process and the server's other processes: identity, waits, signals, exit.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

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

/// Whether the server is in recovery, for example as a standby.
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

/// An identifier of this process among all that the server ever had, in the format of `%c` in log_line_prefix.
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

/// The timeline that this server writes, in hexadecimal as in the names of WAL files. Only outside recovery.
pub fn timeline() -> String {
    // SAFETY: reads shared memory; a worker runs only after the end of recovery.
    let timeline = unsafe { pg_sys::GetWALInsertionTimeLine() };
    format!("{timeline:X}")
}

/// The current time, in microseconds since 2000-01-01.
pub fn now() -> i64 {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// A clock that runs only while this thread has the processor: only differences of its times mean something.
pub fn processor_clock() -> Instant {
    thread_local! {
        static ORIGIN: Instant = Instant::now();
    }
    // SAFETY: all bytes zero are a timespec, which the call fills.
    let taken = unsafe {
        let mut taken: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut taken);
        taken
    };
    let seconds = u64::try_from(taken.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(taken.tv_nsec).unwrap_or(0);
    ORIGIN.with(|origin| *origin) + Duration::new(seconds, nanos)
}

/// Sets the latch of the process at this index of the server's process array. Does nothing for a negative index.
pub fn set_latch_of(proc_number: i32) {
    if proc_number >= 0 {
        // SAFETY: the index came from `own_proc_number` in some process. If that process has ended, the latch belongs
        // to the process that has the entry now, and every process tolerates a latch that is set without a reason.
        unsafe { pg_sys::ProcSendSignal(proc_number) };
    }
}

/// Whether a process in the server's process array has this id.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: looks up the id in the server's process array, and does not keep the pointer.
    unsafe { !pg_sys::BackendPidGetProc(pid).is_null() }
}

/// Asks a process of this server to end, as pg_terminate_backend does. Does nothing for 0 or a process that has ended.
pub fn terminate(pid: i32) {
    if pid > 0 && is_alive(pid) {
        // SAFETY: sends a signal; the process may have ended by now, which is as good.
        let _ = unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Waits until this process's latch is set or `timeout` has passed, then processes pending interrupts. Ends the process
/// at once if the postmaster dies.
pub fn wait(timeout: Duration) {
    wait_for(timeout, None);
}

/// As [`wait`], but also returns when `socket`, if given, can be read.
pub fn wait_for(timeout: Duration, socket: Option<RawFd>) {
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    if socket.is_some() {
        events |= pg_sys::WL_SOCKET_READABLE;
    }
    // The server accepts at most i32::MAX milliseconds.
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

/// Starts a thread with all signals blocked, because the server's signal handlers belong to its own thread.
///
/// # Errors
/// If the system cannot start a thread or block the signals.
pub fn spawn_without_signals(
    name: &str,
    body: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    // SAFETY: the two sets are plain memory, filled by the calls. A new thread inherits the mask of the thread that
    // starts it; this thread's own mask is restored.
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

/// Raises the limit on open files to `wanted`, as far as the system allows. Returns the limit; 0 if unreadable.
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

/// Reports the statistics that this process has held back so far. Outside a transaction.
pub fn report_statistics() {
    // SAFETY: main thread, no transaction open.
    unsafe { pg_sys::pgstat_report_stat(true) };
}

/// Ends this process. After status 1, the postmaster restarts a background worker that has a restart time, unless the
/// server is shutting down.
pub fn exit(status: i32) {
    // SAFETY: runs the server's own callbacks; no destructor of ours matters beyond this point.
    unsafe { pg_sys::proc_exit(status) };
}

/// Runs `action` at the end of this process, before it leaves shared memory. Actions run in the reverse order of
/// registration: one registered before the process connects to its database runs after its locks are released.
pub fn before_exit(action: impl Fn() + 'static) {
    // SAFETY: a guarded function of the expected signature, with the argument that it expects.
    unsafe { pg_sys::before_shmem_exit(Some(run_at_exit), kept(Box::new(action))) };
}

/// Runs `action` at the end of this process, after its locks are released, while it can still wake another process.
pub fn at_exit(action: impl Fn() + 'static) {
    // SAFETY: as in `before_exit`.
    unsafe { pg_sys::on_shmem_exit(Some(run_at_exit), kept(Box::new(action))) };
}

/// Keeps an action in memory for as long as the process lives, and returns the argument for [`run_at_exit`].
fn kept(action: Box<dyn Fn()>) -> pg_sys::Datum {
    pg_sys::Datum::from(Box::into_raw(Box::new(action)))
}

#[pg_guard]
unsafe extern "C-unwind" fn run_at_exit(_code: i32, argument: pg_sys::Datum) {
    // SAFETY: the argument was made by `kept` and is never freed.
    let action = unsafe { &*argument.cast_mut_ptr::<Box<dyn Fn()>>() };
    action();
}
