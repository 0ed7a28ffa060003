//! The triggers behind an INSERT: new accounts get their activation tokens, new tokens enter the queue, and the
//! worker is told at commit.
//!
//! A statement that stored one row is what an application runs all day, so it has a statement of its own here,
//! without a scan of the transition table; any number of rows is one statement, too.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::trigger::{Kind, NewRows, Statement, VERSION_1, is_label};
use crate::{notify, random, restore, server, settings, wake};

const ISSUE: &str = "_accounts_issue_activation";
const ENQUEUE: &str = "_tokens_enqueue";

/// `pending.lane` of what goes first.
const URGENT: i16 = 0;
/// `pending.lane` of everything else.
const NORMAL: i16 = 1;

thread_local! {
    static ISSUE_ONE: Statement = const {
        Statement::new(
            include_str!("../sql/queries/issue_one.sql"),
            &[
                pg_sys::INT8OID,
                pg_sys::BYTEAOID,
                pg_sys::TEXTOID,
                pg_sys::INT8OID,
                pg_sys::INT8OID,
            ],
        )
    };
    static ISSUE_ALL: Statement = const {
        Statement::new(include_str!("../sql/queries/issue_all.sql"), &[])
    };
    static ENQUEUE_ONE: Statement = const {
        Statement::new(
            include_str!("../sql/queries/enqueue_one.sql"),
            &[pg_sys::INT2OID, pg_sys::INT8OID],
        )
    };
    static ENQUEUE_ALL: Statement = const {
        Statement::new(include_str!("../sql/queries/enqueue_all.sql"), &[])
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
}

const NOTHING: Found = Found {
    count: 0,
    id: 0,
    urgent: false,
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
    let mut found = NOTHING;
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
    found.unwrap_or_else(|misused| {
        misused.report(PgLogLevel::ERROR);
        NOTHING
    })
}

/// Which of the two triggers.
#[derive(Clone, Copy)]
#[repr(C)]
enum Function {
    Issue,
    Enqueue,
}

/// The values of an activation token's row, for `issue_one.sql`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Activation([pg_sys::Datum; 5]);

/// What the defaults of `tokens` give, without an expression to be made ready for each.
#[pg_guard]
extern "C-unwind" fn activation(account: i64) -> Activation {
    let drawn = || -> Result<_, ErrorReport> { Ok((random::secret()?, random::code()?)) };
    let (secret, code) = match drawn() {
        Ok((secret, code)) => (secret.to_vec().into_datum(), code.into_datum()),
        Err(error) => {
            error.report(PgLogLevel::ERROR);
            (None, None)
        }
    };
    let now = server::transaction_epoch();
    let expires_at = now.saturating_add(settings::token_ttl());
    Activation([
        pg_sys::Datum::from(account),
        secret.unwrap_or(pg_sys::Datum::null()),
        code.unwrap_or(pg_sys::Datum::null()),
        pg_sys::Datum::from(expires_at),
        pg_sys::Datum::from(now),
    ])
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
        match found.count {
            0 => {}
            1 => {
                let row = activation(found.id);
                ISSUE_ONE.with(|one| one.run(fcinfo, row.0));
            }
            _ => ISSUE_ALL.with(|all| all.run(fcinfo, [])),
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
        if found.count == 1 {
            let lane = if found.urgent { URGENT } else { NORMAL };
            let row = [pg_sys::Datum::from(lane), pg_sys::Datum::from(found.id)];
            ENQUEUE_ONE.with(|one| one.run(fcinfo, row));
        } else if found.count > 1 {
            ENQUEUE_ALL.with(|all| all.run(fcinfo, []));
        }
        if found.count > 0 {
            tell(found);
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
