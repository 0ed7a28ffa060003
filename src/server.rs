//! What differs between the server versions we support, and nothing else.

use std::time::Duration;

use pgrx::pg_sys;

/// The index of this process in the server's array of processes: unlike a pointer it means the same in
/// every process, and a stale one can at worst wake a stranger.
pub fn own_proc_number() -> i32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: MyProc is set in every process that runs this library's workers and lives as long as it.
    unsafe {
        (*pg_sys::MyProc).pgprocno
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    // SAFETY: a plain variable of this process.
    unsafe {
        pg_sys::MyProcNumber
    }
}

/// This process among all that the server ever had, as `%c` in log_line_prefix names it.
pub fn session_id() -> String {
    // SAFETY: plain variables of this process, set at its start.
    let (began, pid) = unsafe { (pg_sys::MyStartTime, pg_sys::MyProcPid) };
    format!("{began:x}.{pid:x}")
}

/// The timeline that this server writes, in hexadecimal as in the names of WAL files. Outside recovery only.
pub fn timeline() -> String {
    // SAFETY: reads shared memory; a worker runs only when recovery is over.
    let timeline = unsafe { pg_sys::GetWALInsertionTimeLine() };
    format!("{timeline:X}")
}

/// Sets the latch of the process at this index of the server's array; does nothing for a negative one.
pub fn wake(proc_number: i32) {
    if proc_number >= 0 {
        // SAFETY: the index came from `own_proc_number` of some process. If that process has meanwhile ended,
        // the latch is that of whoever has the entry now, and a latch set for no reason is something every
        // process lives with.
        unsafe { pg_sys::ProcSendSignal(proc_number) };
    }
}

/// Now, in microseconds since 2000-01-01.
pub fn now() -> i64 {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// Asks a process of this server to end, as pg_terminate_backend does; does nothing for 0.
pub fn terminate(pid: i32) {
    // SAFETY: asks the server first whether this is one of its processes.
    if pid > 0 && unsafe { !pg_sys::BackendPidGetProc(pid).is_null() } {
        unsafe extern "C" {
            safe fn kill(pid: i32, signal: i32) -> i32;
        }
        // It may be gone by now, which is as good.
        let _ = kill(pid, pg_sys::SIGTERM as i32);
    }
}

/// Waits until this process's latch is set or `timeout` has passed, and lets pending interrupts be served.
/// Ends the process at once when the postmaster is gone.
pub fn wait(timeout: Duration) {
    wait_for(timeout, None);
}

/// As [`wait`], and until this socket can be read, if one is given.
pub fn wait_for(timeout: Duration, socket: Option<std::os::fd::RawFd>) {
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
            wait_event(),
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

/// What pg_stat_activity shows while a process of ours waits: `MailroomIdle` where extensions can name it.
fn wait_event() -> u32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        pg_sys::PG_WAIT_EXTENSION
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    {
        use std::sync::OnceLock;
        static EVENT: OnceLock<u32> = OnceLock::new();
        // SAFETY: the name is NUL-terminated and copied; the same name gives the same event everywhere.
        *EVENT.get_or_init(|| unsafe { pg_sys::WaitEventExtensionNew(c"MailroomIdle".as_ptr()) })
    }
}

/// Hands over the statistics of this process's work that were held back so far.
pub fn report_statistics() {
    // SAFETY: main thread, no transaction open.
    unsafe { pg_sys::pgstat_report_stat(true) };
}

// Declared in src/include/utils/timeout.h, which pgrx does not bind; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn enable_timeout_after(id: std::ffi::c_int, delay_ms: std::ffi::c_int);
    fn disable_timeout(id: std::ffi::c_int, keep_indicator: bool);
}

/// `STATEMENT_TIMEOUT` of `enum TimeoutId`.
const STATEMENT_TIMEOUT: std::ffi::c_int = 3;

/// Has the running statement cancelled after `limit`. The server arms this for clients only.
pub fn arm_statement_timeout(limit: Duration) {
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: registered for every process that is connected to a database; main thread.
    unsafe { enable_timeout_after(STATEMENT_TIMEOUT, millis) };
}

/// Takes back [`arm_statement_timeout`].
pub fn disarm_statement_timeout() {
    // SAFETY: as above; harmless when it is not armed.
    unsafe { disable_timeout(STATEMENT_TIMEOUT, false) };
}

/// Whether the current user owns this database, as a superuser does with all of them.
pub fn owns_database(database: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction, as every statement is.
    unsafe {
        #[cfg(feature = "pg15")]
        {
            pg_sys::pg_database_ownercheck(database, pg_sys::GetUserId())
        }
        #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
        {
            pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, pg_sys::GetUserId())
        }
    }
}

/// Whether this role owns the extension of this name, as a superuser does with all of them.
pub fn owns_extension(name: &std::ffi::CStr, role: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction; the name is NUL-terminated; `true` makes a missing extension InvalidOid.
    unsafe {
        let extension = pg_sys::get_extension_oid(name.as_ptr(), true);
        if extension == pg_sys::InvalidOid {
            return false;
        }
        #[cfg(feature = "pg15")]
        {
            pg_sys::pg_extension_ownercheck(extension, role)
        }
        #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
        {
            pg_sys::object_ownercheck(pg_sys::ExtensionRelationId, extension, role)
        }
    }
}

/// Whether the current user may copy this database without owning it: a template, by a role with CREATEDB.
pub fn may_copy(database: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction. Each row is looked at while the cache holds it, by its fixed part.
    unsafe {
        let is_template = with_row(pg_sys::SysCacheIdentifier::DATABASEOID, database, |row| {
            (*row.cast::<pg_sys::FormData_pg_database>()).datistemplate
        });
        is_template
            && with_row(
                pg_sys::SysCacheIdentifier::AUTHOID,
                pg_sys::GetUserId(),
                |row| (*row.cast::<pg_sys::FormData_pg_authid>()).rolcreatedb,
            )
    }
}

/// What `read` says of the row with this oid; false when there is none.
///
/// # Safety
/// In a transaction; `cache` is one by oid; `read` looks at the fixed part of its rows only.
unsafe fn with_row(
    cache: pg_sys::SysCacheIdentifier::Type,
    oid: pg_sys::Oid,
    read: impl FnOnce(*mut std::ffi::c_char) -> bool,
) -> bool {
    // SAFETY: by the caller's word.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache as i32, pg_sys::Datum::from(oid));
        if tuple.is_null() {
            return false;
        }
        let answer = read(pg_sys::GETSTRUCT(tuple).cast());
        pg_sys::ReleaseSysCache(tuple);
        answer
    }
}

// Declared in src/include/tcop/tcopprot.h; the same in PostgreSQL 15 to 18.
unsafe extern "C-unwind" {
    fn die(signal: i32);
}

/// Has SIGTERM end this process wherever it looks for interrupts, as it does with sessions.
pub fn die_on_sigterm() {
    on_sigterm(die);
}

/// Installs a handler for SIGTERM.
pub fn on_sigterm(handler: unsafe extern "C-unwind" fn(i32)) {
    on_signal(pg_sys::SIGTERM, handler);
}

/// Installs a handler for SIGINT, by which statements are cancelled, be it by timeouts or by people.
pub fn on_cancel(handler: unsafe extern "C-unwind" fn(i32)) {
    on_signal(pg_sys::SIGINT, handler);
}

fn on_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: the handler does only what signal handlers may; see its own notes.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::pqsignal(signal as i32, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal as i32, Some(handler));
    }
}

/// The five characters of an error code.
pub fn sqlstate(code: pgrx::PgSqlErrorCode) -> String {
    // SAFETY: returns a static, NUL-terminated buffer of this process, copied before anybody else uses it.
    unsafe { std::ffi::CStr::from_ptr(pg_sys::unpack_sql_state(code as i32)) }
        .to_string_lossy()
        .into_owned()
}
