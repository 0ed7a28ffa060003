//! The triggers behind an INSERT: new accounts get their activation tokens, new tokens enter the queue, and the
//! worker is told at commit.
//!
//! A statement that stored one row is what an application runs all day. What follows from it is stored without a
//! statement where the tables are as the extension made them, see [`ways`]; else, and for any other number of rows,
//! it is one statement.

mod ways;

use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;

use self::ways::{Ways, close, open};
use crate::trigger::{Kind, NewRows, Statement, VERSION_1, hand_on, is_label};
use crate::{notify, random, restore, server, settings, wake};

const ISSUE: &str = "_accounts_issue_activation";
const ENQUEUE: &str = "_tokens_enqueue";

/// `pending.lane` of what goes first.
const URGENT: i16 = 0;
/// `pending.lane` of everything else.
const NORMAL: i16 = 1;

thread_local! {
    static ISSUE_ALL: Statement = const {
        Statement::new(include_str!("../sql/queries/issue_all.sql"))
    };
    static ENQUEUE_ALL: Statement = const {
        Statement::new(include_str!("../sql/queries/enqueue_all.sql"))
    };
}

/// What a statement stored, as far as it concerns a trigger.
#[derive(Clone, Copy)]
#[repr(C)]
struct Found {
    /// Rows that need something.
    count: i64,
    /// The id of one of them.
    id: i64,
    /// Whether one is urgent.
    urgent: bool,
    /// Whether they are certainly as they were stored.
    untouched: bool,
}

const NOTHING: Found = Found {
    count: 0,
    id: 0,
    urgent: false,
    untouched: false,
};

impl Found {
    fn add(&mut self, id: Option<pg_sys::Datum>, urgent: bool) {
        self.count += 1;
        self.id = id.map_or(0, |id| id.value() as i64);
        self.urgent |= urgent;
    }
}

/// The new accounts that get a token.
fn provisioned(rows: &NewRows) -> Result<Found, ErrorReport> {
    let id = rows.column(c"id", Kind::BigInt, ISSUE)?;
    let status = rows.column(c"status", Kind::Enum, ISSUE)?;
    let mut found = Found {
        untouched: rows.are_untouched(),
        ..NOTHING
    };
    rows.for_each(|row| {
        if row
            .get(status)
            .is_some_and(|value| is_label(value, c"provisioned"))
        {
            found.add(row.get(id), false);
        }
    });
    Ok(found)
}

/// The new tokens that are to be handed out.
fn unused(rows: &NewRows) -> Result<Found, ErrorReport> {
    let id = rows.column(c"id", Kind::BigInt, ENQUEUE)?;
    let action = rows.column(c"action", Kind::Enum, ENQUEUE)?;
    let consumed_at = rows.column(c"consumed_at", Kind::BigInt, ENQUEUE)?;
    let mut found = NOTHING;
    rows.for_each(|row| {
        if row.get(consumed_at).is_none() {
            let urgent = row
                .get(action)
                .is_some_and(|value| is_label(value, c"password_recovery"));
            found.add(row.get(id), urgent);
        }
    });
    Ok(found)
}

#[pg_guard]
unsafe extern "C-unwind" fn find(fcinfo: pg_sys::FunctionCallInfo, function: Function) -> Found {
    if restore::in_progress() {
        return NOTHING;
    }
    let (name, look): (_, fn(&NewRows) -> _) = match function {
        Function::Issue => (ISSUE, provisioned),
        Function::Enqueue => (ENQUEUE, unused),
    };
    // SAFETY: what the server called with.
    let found = unsafe { NewRows::of(fcinfo, name) }.and_then(|rows| look(&rows));
    found.unwrap_or_report()
}

/// Which of the two triggers.
#[derive(Clone, Copy)]
#[repr(C)]
enum Function {
    Issue,
    Enqueue,
}

/// What an activation token's row needs besides its account and action.
#[derive(Clone, Copy)]
#[repr(C)]
struct Activation {
    secret: pg_sys::Datum,
    code: pg_sys::Datum,
    expires_at: i64,
    created_at: i64,
}

/// What the defaults of `tokens` give.
#[pg_guard]
extern "C-unwind" fn activation() -> Activation {
    let drawn = || -> Result<_, ErrorReport> { Ok((random::secret()?, random::code()?)) };
    let (secret, code) = drawn().unwrap_or_report();
    let (secret, code) = (secret.to_vec().into_datum(), code.into_datum());
    let created_at = server::transaction_epoch();
    Activation {
        secret: secret.unwrap_or(pg_sys::Datum::null()),
        code: code.unwrap_or(pg_sys::Datum::null()),
        expires_at: created_at.saturating_add(settings::token_ttl()),
        created_at,
    }
}

/// Stores the token of the one account that was found, and queues it, if it can be done without a statement.
///
/// # Safety
/// As of [`Statement::run`].
unsafe fn issue_one(fcinfo: pg_sys::FunctionCallInfo, found: Found) -> bool {
    // SAFETY: by the caller's word.
    unsafe {
        let open = open(fcinfo, Function::Issue, found);
        let Some(Ways {
            into_tokens: Some((tokens, _, action)),
            into_pending: Some(pending),
            ..
        }) = Ways::known()
        else {
            return false;
        };
        if open.tokens.is_null() {
            return false;
        }
        let id = tokens.next_id();
        // The statement says what is wrong with it.
        let is_usable = id > 0;
        if is_usable {
            let row = activation();
            let values = [
                pg_sys::Datum::from(id),
                pg_sys::Datum::from(found.id),
                action,
                row.secret,
                row.code,
                pg_sys::Datum::from(row.expires_at),
                pg_sys::Datum::from(row.created_at),
            ];
            tokens.store(open.tokens, values);
            let values = [pg_sys::Datum::from(NORMAL), pg_sys::Datum::from(id)];
            pending.store(open.pending, values);
        }
        close(open);
        if is_usable {
            tell(found);
        }
        is_usable
    }
}

/// Queues the one token that was found, if it can be done without a statement.
///
/// # Safety
/// As of [`Statement::run`].
unsafe fn enqueue_one(fcinfo: pg_sys::FunctionCallInfo, found: Found) -> bool {
    // SAFETY: by the caller's word.
    unsafe {
        let open = open(fcinfo, Function::Enqueue, found);
        let Some(Ways {
            into_pending: Some(pending),
            ..
        }) = Ways::known()
        else {
            return false;
        };
        if open.pending.is_null() {
            return false;
        }
        let lane = if found.urgent { URGENT } else { NORMAL };
        let values = [pg_sys::Datum::from(lane), pg_sys::Datum::from(found.id)];
        pending.store(open.pending, values);
        close(open);
        true
    }
}

/// Has the worker, or whoever listens on `mailroom.channel`, told of so many tokens at commit.
#[pg_guard]
extern "C-unwind" fn tell(found: Found) {
    if wake::announce(found.count, found.urgent) {
        notify::notify(&settings::channel());
    }
}

/// `_accounts_issue_activation()` of `20_tokens.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _accounts_issue_activation_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe {
        let found = find(fcinfo, Function::Issue);
        if found.count > 0 && !(found.count == 1 && issue_one(fcinfo, found)) {
            hand_on(fcinfo, c"_issue_activations");
        }
    }
    pg_sys::Datum::null()
}

/// `_issue_activations()` of `20_tokens.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _issue_activations_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: as above.
    unsafe {
        if find(fcinfo, Function::Issue).count > 0 {
            ISSUE_ALL.with(|all| all.run(fcinfo));
        }
    }
    pg_sys::Datum::null()
}

/// `_tokens_enqueue()` of `30_pending.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _tokens_enqueue_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the server's own argument is handed on; this frame owns nothing.
    unsafe {
        let found = find(fcinfo, Function::Enqueue);
        if found.count > 0 {
            if !(found.count == 1 && enqueue_one(fcinfo, found)) {
                hand_on(fcinfo, c"_enqueue_tokens");
            }
            tell(found);
        }
    }
    pg_sys::Datum::null()
}

/// `_enqueue_tokens()` of `30_pending.sql`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _enqueue_tokens_wrapper(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: as above.
    unsafe {
        if find(fcinfo, Function::Enqueue).count > 0 {
            ENQUEUE_ALL.with(|all| all.run(fcinfo));
        }
    }
    pg_sys::Datum::null()
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__accounts_issue_activation_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__tokens_enqueue_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__issue_activations_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}

#[unsafe(no_mangle)]
extern "C" fn pg_finfo__enqueue_tokens_wrapper() -> &'static pg_sys::Pg_finfo_record {
    &VERSION_1
}
