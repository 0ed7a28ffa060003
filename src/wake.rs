//! How a commit wakes the worker: a bell for each database in shared memory, rung after the commit.
//!
//! The trigger on `tokens` announces what its statement queued. The numbers are kept in this process until
//! its transaction ends: a rollback, of a savepoint too, takes them back, and only a COMMIT adds them to the
//! bell of the database and, when the worker must act, sets the worker's latch. The worker must act when
//! nothing waited before, when the batch became full, or when something urgent came; all other commits cost
//! one atomic addition. There is no lock on this path, unlike with NOTIFY, which lets one such commit through
//! at a time.
//!
//! The count is what was *announced*. Others may have taken tokens meanwhile and prepared transactions are
//! never announced, so it tells the worker when to look and never what is there.
//!
//! A bell holds numbers, never addresses; the worker's latch is found by its index in the server's array of
//! processes. A transaction that found no bell NOTIFYs at commit instead.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;
use pgrx::{PgSharedMemoryInitialization, pg_shmem_init};

use crate::registry::{self, SLOTS, SlotIndex};
use crate::settings::{self, Notify};
use crate::{notify, server};

/// What writers and the worker of one database share.
struct Bell {
    /// `pg_database.oid` of the database whose worker listens; 0 for none.
    database: AtomicU32,
    /// The worker's index in the server's array of processes.
    worker: AtomicI32,
    /// Tokens announced and not accounted for yet.
    announced: AtomicU32,
    /// Whether one of them was urgent.
    urgent: AtomicBool,
    /// Something was announced of which outside listeners have not heard yet.
    untold: AtomicBool,
    /// How many fill a batch.
    limit: AtomicU32,
    /// Something besides the queue changed: the worker is to look at everything anew.
    recheck: AtomicBool,
    /// Somebody who had taken tokens gave them back.
    given_back: AtomicBool,
    /// Mail was announced that is due.
    due_now: AtomicBool,
    /// The earliest time to come at which the outbox wants the worker, as announced and not taken note of yet:
    /// microseconds since 2000-01-01, [`NEVER`] for none.
    due: AtomicI64,
    /// What the worker is about, for people.
    report: Report,
    /// When the log was last told of each [`Abuse`], as in [`Report`].
    logged: [AtomicI64; 2],
}

/// No time at all.
const NEVER: i64 = i64::MAX;

/// What a worker tells of itself in `mailroom_status()`. Each part is true by itself; together they may be
/// of two moments.
#[derive(Default)]
struct Report {
    pid: AtomicI32,
    /// Timestamps as the server has them: microseconds since 2000-01-01, 0 for never.
    since: AtomicI64,
    last_batch: AtomicI64,
    failures: AtomicU32,
    next_wake: AtomicI64,
    /// A [`Next`].
    next: AtomicU32,
}

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Next {
    /// Nothing waits: the poll floor.
    Poll = 0,
    /// A partial batch: its timeout.
    Timeout = 1,
    /// A failure: the next try.
    Retry = 2,
    /// mailroom_resume().
    Resume = 3,
    /// A message that becomes due, or a claim that lapses.
    Due = 4,
    /// A restore: its end.
    Restored = 5,
    /// Tokens are left to clients: a commit that they are to hear of, or the poll floor.
    Left = 6,
}

impl Next {
    fn from_number(number: u32) -> &'static str {
        match number {
            1 => "timeout of a partial batch",
            2 => "next try after a failure",
            3 => "paused, until mailroom_resume()",
            4 => "a message becomes due or a claim lapses",
            5 => "a dump is being restored",
            6 => "tokens are left to clients (mailroom.collect is off)",
            _ => "poll",
        }
    }
}

/// One bell for each slot of the registry.
struct Bells {
    /// Where shared memory has them, in this process; null unless the library was preloaded.
    shared: UnsafeCell<*mut [Bell; SLOTS]>,
}

// SAFETY: the cell is written once, in the postmaster before it forks, and only read from then on; what it
// points to is made of atomics.
unsafe impl Sync for Bells {}

static BELLS: Bells = Bells {
    shared: UnsafeCell::new(std::ptr::null_mut()),
};

impl PgSharedMemoryInitialization for Bells {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: called by the server from its shmem_request_hook.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<[Bell; SLOTS]>()) };
    }

    unsafe fn on_shmem_startup(&'static self, (): ()) {
        let mut found = false;
        // SAFETY: called by the server from its shmem_startup_hook, in the postmaster, where nobody else is
        // about. All-zero bytes are valid bells: nobody is there and nothing was announced.
        unsafe {
            let size = size_of::<[Bell; SLOTS]>();
            let place = pg_sys::ShmemInitStruct(c"mailroom bells".as_ptr(), size, &mut found);
            if !found {
                place.cast::<u8>().write_bytes(0, size);
            }
            *self.shared.get() = place.cast();
        }
    }
}

impl Bells {
    fn all(&'static self) -> &'static [Bell] {
        // SAFETY: see Sync; the memory is mapped for as long as the process lives.
        unsafe { (*self.shared.get()).as_ref() }.map_or(&[], |bells| bells.as_slice())
    }

    /// The bell of the database this process is connected to, if its worker listens.
    fn of_this_database(&'static self) -> Option<&'static Bell> {
        thread_local! {
            /// Where it was last time. Only a hint: slots come and go.
            static LAST: Cell<usize> = const { Cell::new(0) };
        }
        // SAFETY: a plain variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
        let bells = self.all();
        let is_ours = |bell: &Bell| bell.database.load(Ordering::Acquire) == database;
        if let Some(bell) = bells.get(LAST.get()).filter(|bell| is_ours(bell)) {
            return Some(bell);
        }
        let index = bells.iter().position(is_ours)?;
        LAST.set(index);
        bells.get(index)
    }
}

/// Reserves the shared memory. Called from `_PG_init` while libraries are being preloaded.
pub fn reserve() {
    pg_shmem_init!(BELLS);
}

impl Bell {
    /// Adds to what was announced, and wakes the worker if that is a reason to act.
    fn ring(&self, tokens: u32, urgent: bool) {
        if urgent {
            // Before the count: whoever sees the count then sees this too.
            self.urgent.store(true, Ordering::Release);
        }
        // Read first, for most commits find it set, and a write would take the line from all other writers.
        if !self.untold.load(Ordering::Relaxed) {
            self.untold.store(true, Ordering::Release);
        }
        let before = self.announced.fetch_add(tokens, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        let filled = before < limit && before.saturating_add(tokens) >= limit;
        if before == 0 || filled || urgent {
            server::wake(self.worker.load(Ordering::Acquire));
        }
    }

    /// Tells of mail that is due, and wakes the worker if it has not been told yet.
    fn tell_of_due(&self) {
        if !self.due_now.load(Ordering::Relaxed) && !self.due_now.swap(true, Ordering::AcqRel) {
            server::wake(self.worker.load(Ordering::Acquire));
        }
    }

    /// Tells of a time at which the outbox wants the worker, and wakes it if none so early was told before.
    fn remind(&self, due: i64) {
        if due < self.due.fetch_min(due, Ordering::AcqRel) {
            server::wake(self.worker.load(Ordering::Acquire));
        }
    }

    /// Has the worker look for tokens that were given back.
    fn give_back(&self) {
        self.given_back.store(true, Ordering::Release);
        server::wake(self.worker.load(Ordering::Acquire));
    }

    /// Has the worker look at everything.
    fn recheck(&self) {
        self.recheck.store(true, Ordering::Release);
        server::wake(self.worker.load(Ordering::Acquire));
    }
}

/// The worker's end of its database's bell.
pub struct Post {
    bell: &'static Bell,
}

/// What was announced to the worker.
#[derive(Clone, Copy, Default)]
pub struct Announced {
    /// Tokens, not accounted for yet.
    pub count: u32,
    /// Whether one was urgent.
    pub urgent: bool,
}

impl Post {
    /// Takes the post: from now on commits in this database ring instead of sending NOTIFY.
    ///
    /// Whoever takes it must look at the queue afterwards, for what was committed before. `None` without
    /// shared memory.
    pub fn take(index: SlotIndex, limit: u32) -> Option<Self> {
        let bell = BELLS.all().get(index.get())?;
        bell.announced.store(0, Ordering::Relaxed);
        bell.urgent.store(false, Ordering::Relaxed);
        bell.untold.store(false, Ordering::Relaxed);
        bell.limit.store(limit, Ordering::Relaxed);
        bell.recheck.store(false, Ordering::Relaxed);
        bell.given_back.store(false, Ordering::Relaxed);
        bell.due_now.store(false, Ordering::Relaxed);
        bell.due.store(NEVER, Ordering::Relaxed);
        bell.report.last_batch.store(0, Ordering::Relaxed);
        bell.report.next_wake.store(0, Ordering::Relaxed);
        bell.report.since.store(server::now(), Ordering::Relaxed);
        // SAFETY: a plain variable of this process.
        bell.report
            .pid
            .store(unsafe { pg_sys::MyProcPid }, Ordering::Relaxed);
        bell.worker
            .store(server::own_proc_number(), Ordering::Release);
        // SAFETY: a plain variable of this process.
        bell.database
            .store(unsafe { pg_sys::MyDatabaseId }.to_u32(), Ordering::Release);
        Some(Self { bell })
    }

    /// Whether everything is to be looked at anew; asks once.
    pub fn take_recheck(&self) -> bool {
        self.bell.recheck.swap(false, Ordering::AcqRel)
    }

    /// Whether tokens were given back; asks once.
    pub fn take_given_back(&self) -> bool {
        self.bell.given_back.swap(false, Ordering::AcqRel)
    }

    /// Whether mail is due that was not at the last call.
    pub fn take_due_now(&self) -> bool {
        self.bell.due_now.swap(false, Ordering::AcqRel)
    }

    /// The earliest time to come at which the outbox wants the worker, of those told since the last call.
    pub fn take_due(&self) -> Option<i64> {
        Some(self.bell.due.swap(NEVER, Ordering::AcqRel)).filter(|&due| due != NEVER)
    }

    /// Tells people what the worker waits for, and until when.
    pub fn report_wait(&self, next: Next, pause: Duration, failures: u32) {
        let report = &self.bell.report;
        let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
        report
            .next_wake
            .store(server::now().saturating_add(micros), Ordering::Relaxed);
        report.next.store(next as u32, Ordering::Relaxed);
        report.failures.store(failures, Ordering::Relaxed);
    }

    /// Tells people that a batch was just taken.
    pub fn report_batch(&self) {
        self.bell
            .report
            .last_batch
            .store(server::now(), Ordering::Relaxed);
    }

    /// Sets how many tokens fill a batch.
    pub fn set_limit(&self, limit: u32) {
        self.bell.limit.store(limit, Ordering::Relaxed);
    }

    /// What was announced and not accounted for.
    pub fn announced(&self) -> Announced {
        let count = self.bell.announced.load(Ordering::Acquire);
        Announced {
            count,
            urgent: self.bell.urgent.load(Ordering::Acquire),
        }
    }

    /// Accounts for `count` tokens.
    ///
    /// Call this with what was read *before* the queue was looked at: what is announced in between stays.
    pub fn account_for(&self, count: u32) {
        self.replace(count, 0);
    }

    /// Accounts for `count` tokens and puts `waiting` in their place.
    pub fn replace(&self, count: u32, waiting: u32) {
        let _ =
            self.bell
                .announced
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |announced| {
                    Some(announced.saturating_sub(count).saturating_add(waiting))
                });
    }

    /// Whether something was announced since the last call.
    pub fn take_untold(&self) -> bool {
        self.bell.untold.swap(false, Ordering::AcqRel)
    }

    /// Takes note of the urgent ones, and returns whether there were any; call this before the queue is looked
    /// at.
    pub fn acknowledge_urgent(&self) -> bool {
        self.bell.urgent.swap(false, Ordering::AcqRel)
    }
}

/// Leaves the post, so that commits in this database NOTIFY again. Safe to call for a post never taken.
pub fn leave_post(index: SlotIndex) {
    if let Some(bell) = BELLS.all().get(index.get()) {
        bell.database.store(0, Ordering::Release);
        bell.worker.store(-1, Ordering::Release);
    }
}

/// What the worker of this database tells of itself; no row when there is none.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the shape of a SQL row")]
fn _worker_report() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(since, Option<TimestampWithTimeZone>),
        name!(last_batch_at, Option<TimestampWithTimeZone>),
        name!(failures, i32),
        name!(next_wake_at, Option<TimestampWithTimeZone>),
        name!(next_wake_for, &'static str),
    ),
> {
    TableIterator::new(BELLS.of_this_database().map(|bell| {
        let report = &bell.report;
        let time = |at: &AtomicI64| match at.load(Ordering::Relaxed) {
            0 => None,
            micros => TimestampWithTimeZone::try_from(micros).ok(),
        };
        (
            report.pid.load(Ordering::Relaxed),
            time(&report.since),
            time(&report.last_batch),
            i32::try_from(report.failures.load(Ordering::Relaxed)).unwrap_or(i32::MAX),
            time(&report.next_wake),
            Next::from_number(report.next.load(Ordering::Relaxed)),
        )
    }))
}

/// Has the worker look at everything now, or asks for one; returns whether there was one.
#[pg_extern(sql = false)]
fn mailroom_wake_worker() -> bool {
    let there = BELLS.of_this_database().map(Bell::recheck).is_some();
    if !there {
        // SAFETY: a plain variable of this process.
        registry::request(unsafe { pg_sys::MyDatabaseId });
        registry::hurry();
        notify_recheck();
    }
    there
}

/// Has the worker look at everything once this transaction commits, and senders, who hear of it from the worker or, where
/// there is none, from here.
#[pg_extern(sql = false)]
fn _recheck_at_commit() {
    recheck_at_commit();
    if !has_worker() {
        notify_recheck();
    }
}

/// Tells senders, when this transaction commits, that everything is to be looked at and tried.
pub fn notify_recheck() {
    // SAFETY: reads shared memory that every process is attached to. A standby cannot notify.
    let is_standby = unsafe { pg_sys::RecoveryInProgress() };
    if settings::notify() != Notify::Off && !is_standby {
        notify::notify_with(&settings::outbox_channel(), RECHECK_PAYLOAD);
    }
}

/// What a notification on the channel of the outbox says when everything is to be tried at once, a paused transport, too.
const RECHECK_PAYLOAD: &CStr = c"recheck";

/// Whether the worker of this database listens.
pub fn has_worker() -> bool {
    BELLS.of_this_database().is_some()
}

/// As above, for the library itself.
pub fn recheck_at_commit() {
    register_callbacks();
    RECHECK.set(true);
}

/// Has the worker look at everything now, from a process that is about to end.
pub fn recheck_now() {
    if let Some(bell) = BELLS.of_this_database() {
        bell.recheck();
    }
}

/// What is tried with links, as far as the log is told.
#[derive(Clone, Copy)]
enum Abuse {
    /// Five wrong codes were given with one.
    Locked = 0,
    /// They were asked for more often than they are sent.
    Limited = 1,
}

/// Microseconds between two lines of the log on the same sort of abuse.
const SELDOM: i64 = 60_000_000;

/// Writes a LOG line, once a minute at most: in this database, or in this session where there is no worker.
#[pg_extern(sql = false)]
fn _log_abuse(what: &str, account: i64) {
    thread_local! {
        static LOGGED: [AtomicI64; 2] = const { [AtomicI64::new(0), AtomicI64::new(0)] };
    }
    let abuse = match what {
        "locked" => Abuse::Locked,
        _ => Abuse::Limited,
    };
    let now = server::now();
    let is_due = |logged: &[AtomicI64; 2]| {
        logged[abuse as usize]
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
                (last == 0 || now.saturating_sub(last) >= SELDOM).then_some(now)
            })
            .is_ok()
    };
    let is_to_log = match BELLS.of_this_database() {
        Some(bell) => is_due(&bell.logged),
        None => LOGGED.with(is_due),
    };
    if is_to_log {
        let message = match abuse {
            Abuse::Locked => "a link was locked after five wrong codes",
            Abuse::Limited => {
                "a link was asked for more often than mailroom.requests_per_hour allows"
            }
        };
        ereport!(
            PgLogLevel::LOG,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            format!("mailroom: {message}"),
            format!(
                "Account {account}. Others may have been, which is said once a minute at most."
            )
        );
    }
}

/// This transaction took rows of pending: if it is rolled back, the worker is to look for them.
#[pg_extern(sql = false)]
fn _took() {
    took();
}

/// As above, for the library itself.
pub fn took() {
    // The worker itself knows when it failed, and waits then.
    if !is_worker() {
        queue(|part| part.took = true);
    }
}

/// These (sub)transactions are rolled back.
fn give_back(parts: impl Iterator<Item = Queued>) {
    let mut all = Queued::at(1);
    parts.for_each(|part| all.add(&part));
    if !(all.took || all.claimed) {
        return;
    }
    if let Some(bell) = BELLS.of_this_database() {
        if all.took {
            bell.give_back();
        }
        if all.claimed {
            // Due it was, and senders who looked meanwhile found it taken.
            bell.tell_of_due();
        }
    }
}

/// What one (sub)transaction of this process queued and took.
#[derive(Clone, Copy)]
struct Queued {
    /// Nesting level of the (sub)transaction, 1 for the transaction itself.
    level: i32,
    tokens: u32,
    urgent: bool,
    /// As in [`Bell`].
    due_now: bool,
    due: i64,
    /// It took rows of pending, which an abort gives back.
    took: bool,
    /// It claimed mail, which an abort puts back.
    claimed: bool,
}

impl Queued {
    /// Nothing, so far.
    fn at(level: i32) -> Self {
        Self {
            level,
            tokens: 0,
            urgent: false,
            due_now: false,
            due: NEVER,
            took: false,
            claimed: false,
        }
    }

    fn add(&mut self, other: &Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.urgent |= other.urgent;
        self.due_now |= other.due_now;
        self.due = self.due.min(other.due);
        self.took |= other.took;
        self.claimed |= other.claimed;
    }
}

/// Adds to what the current (sub)transaction queued.
fn queue(change: impl FnOnce(&mut Queued)) {
    register_callbacks();
    // SAFETY: in a transaction, as every SQL function is.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    let mut part = Queued::at(level);
    change(&mut part);
    QUEUED.with_borrow_mut(
        |queued| match queued.last_mut().filter(|last| last.level == level) {
            Some(last) => last.add(&part),
            None => queued.push(part),
        },
    );
}

/// This process is the worker of its database, from now on. Others that run in the background, apply workers and those
/// of other extensions, are sessions like any other.
pub fn become_worker() {
    IS_WORKER.set(true);
}

fn is_worker() -> bool {
    IS_WORKER.get()
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    static QUEUED: RefCell<Vec<Queued>> = const { RefCell::new(Vec::new()) };
    static RECHECK: Cell<bool> = const { Cell::new(false) };
    static CALLBACKS: Cell<bool> = const { Cell::new(false) };
}

/// Announces a row of pending or requests, to be told to the worker at commit, or by NOTIFY where the worker does not
/// tell on the writers' behalf. Returns the lane as it is, so that whoever queues rows need not read them again.
#[pg_extern(sql = false)]
fn _announce(lane: i16) -> i16 {
    let mode = settings::notify();
    let notifies = if BELLS.of_this_database().is_some() {
        queue(|part| {
            part.tokens = 1;
            part.urgent = lane == 0;
        });
        mode == Notify::Commit
    } else {
        mode != Notify::Off
    };
    if notifies {
        notify::notify(&settings::channel());
    }
    lane
}

/// Announces that a message becomes due at this time, or a claim lapses, as [`_announce`] does.
#[pg_extern(sql = false)]
fn _mail_due(due: TimestampWithTimeZone) {
    if announce_due(due.into_inner()) {
        notify::notify(&settings::outbox_channel());
    }
}

/// As above, but tells the worker alone.
#[pg_extern(sql = false)]
fn _announce_due(due: TimestampWithTimeZone) {
    announce_due(due.into_inner());
}

/// Has the worker told of a time, in microseconds since 2000-01-01. Returns whether the caller must NOTIFY.
fn announce_due(due: i64) -> bool {
    let mode = settings::notify();
    let is_due = due <= server::now();
    if is_worker() && !DELIVERS.get() {
        // It learns of later times when it looks, and tells of mail in its transaction.
        return mode != Notify::Off && is_due;
    }
    if !is_worker() && BELLS.of_this_database().is_none() {
        return mode != Notify::Off;
    }
    queue(|part| {
        part.due_now = is_due;
        part.due = if is_due { NEVER } else { due };
    });
    if is_worker() {
        return mode != Notify::Off && is_due && others_deliver();
    }
    mode == Notify::Commit
}

thread_local! {
    /// Whether this process is a worker that delivers.
    static DELIVERS: Cell<bool> = const { Cell::new(false) };
    /// Whether others were found that do, beside this worker.
    static OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Whether there is mail that this worker leaves to others, which have to hear of it: it does not deliver itself, others
/// have published transports of theirs, or clients deliver what has no transport named.
pub fn others_deliver() -> bool {
    !DELIVERS.get() || OTHERS.get() || settings::transport().is_empty()
}

/// Says whether others deliver beside this worker.
pub fn set_others(others: bool) {
    OTHERS.set(others);
}

/// Says whether this worker delivers, and so wants to hear of what its own statements make due.
pub fn set_delivers(delivers: bool) {
    DELIVERS.set(delivers);
}

/// Announces the end of a lease, and brings the claim to disk when it commits, whatever the session's
/// synchronous_commit: what somebody is about to send must not be forgotten in a crash.
#[pg_extern(sql = false)]
fn _claimed(until: TimestampWithTimeZone) {
    announce_due(until.into_inner());
    queue(|part| part.claimed = true);
    // SAFETY: in a transaction; sets a flag that lasts as long as it.
    unsafe { pg_sys::ForceSyncCommit() };
}

/// Once in a process: the server keeps callbacks for good.
fn register_callbacks() {
    if !CALLBACKS.replace(true) {
        // SAFETY: guarded functions of the expected shapes, which need no argument.
        unsafe {
            pg_sys::RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(at_subtransaction_event), std::ptr::null_mut());
        }
    }
}

/// After a commit nothing may fail any more: no allocation and no error in here, and no lock unless somebody
/// asked for a recheck.
#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_event(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    match event {
        XACT_EVENT_COMMIT => QUEUED.with_borrow_mut(|queued| {
            let mut all = Queued::at(1);
            queued.drain(..).for_each(|part| all.add(&part));
            let recheck = RECHECK.replace(false);
            match BELLS.of_this_database() {
                Some(bell) => {
                    if all.tokens > 0 {
                        bell.ring(all.tokens, all.urgent);
                    }
                    if all.due_now {
                        bell.tell_of_due();
                    }
                    if all.due != NEVER {
                        bell.remind(all.due);
                    }
                    if recheck {
                        bell.recheck();
                    }
                }
                // A worker that could not start its work tries again.
                None if recheck => registry::hurry(),
                None => {}
            }
        }),
        // Who commits a prepared transaction, and when, is not known here; `ddl.rs` has the worker look when it is.
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => {
            RECHECK.set(false);
            QUEUED.with_borrow_mut(|queued| {
                let parts = queued.drain(..);
                if event == XACT_EVENT_ABORT {
                    give_back(parts);
                }
            });
        }
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_subtransaction_event(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::{SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB};
    // SAFETY: in a transaction; the level is still that of the subtransaction that ends.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    QUEUED.with_borrow_mut(|queued| match event {
        SUBXACT_EVENT_ABORT_SUB => {
            // What was taken around it stays taken. The parts are in the order of their levels.
            let kept = queued.partition_point(|part| part.level < level);
            give_back(queued.drain(kept..));
        }
        SUBXACT_EVENT_COMMIT_SUB => {
            let outer = queued.partition_point(|part| part.level < level);
            let sum = queued.drain(outer..).reduce(|mut sum, part| {
                sum.add(&part);
                sum
            });
            match (sum, queued.last_mut()) {
                (Some(sum), Some(last)) if last.level == level - 1 => last.add(&sum),
                (Some(sum), _) => queued.push(Queued {
                    level: level - 1,
                    ..sum
                }),
                (None, _) => {}
            }
        }
        _ => {}
    });
}
