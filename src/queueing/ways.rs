//! The ways into `tokens` and `pending`, for what the triggers store in them without a statement.
//!
//! They are looked for once, and again when one of the tables has changed.

use std::cell::Cell;

use pgrx::prelude::*;

use super::{Found, Function};
use crate::table::Table;
use crate::trigger::Kind;
use crate::way::{self, Reference, Referred, Wanted, Way};

/// In the order in which the values come.
const TOKENS: Wanted = Wanted {
    table: c"tokens",
    columns: &[
        (c"id", Kind::BigInt),
        (c"account", Kind::BigInt),
        (c"action", Kind::Enum),
        (c"secret", Kind::Bytea),
        (c"code", Kind::Text),
        (c"expires_at", Kind::BigInt),
        (c"created_at", Kind::BigInt),
    ],
    numbered: true,
    triggers: &[
        // What it asks for is true of what is drawn here.
        "CREATE TRIGGER tokens_check BEFORE INSERT OR UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION _tokens_check()",
        "CREATE TRIGGER tokens_enqueue AFTER INSERT ON tokens REFERENCING NEW TABLE AS new_tokens FOR EACH STATEMENT EXECUTE FUNCTION _tokens_enqueue()",
        // No restore comes as far as here.
        "CREATE TRIGGER tokens_before_accounts BEFORE INSERT ON tokens FOR EACH STATEMENT EXECUTE FUNCTION _tokens_before_accounts()",
    ],
    reference: Some(Reference {
        column: c"account",
        table: c"accounts",
        key: c"id",
    }),
    ..Wanted::NOTHING
};

const PENDING: Wanted = Wanted {
    table: c"pending",
    columns: &[(c"lane", Kind::SmallInt), (c"token", Kind::BigInt)],
    triggers: &[
        "CREATE TRIGGER pending_mind_restore BEFORE INSERT ON pending FOR EACH STATEMENT EXECUTE FUNCTION _mind_restore()",
    ],
    ..Wanted::NOTHING
};

/// The ways into the tables behind `accounts`.
#[derive(Clone, Copy)]
pub struct Ways {
    /// [`way::changes`] when they were looked for.
    changes: u64,
    accounts: pg_sys::Oid,
    tokens: pg_sys::Oid,
    pending: pg_sys::Oid,
    /// The way into `tokens`, what its foreign key refers to, and 'activation'.
    pub into_tokens: Option<(Way, Referred, pg_sys::Datum)>,
    pub into_pending: Option<Way>,
}

thread_local! {
    static WAYS: Cell<Option<Ways>> = const { Cell::new(None) };
}

impl Ways {
    /// As they were when the tables were last opened.
    pub fn known() -> Option<Self> {
        WAYS.get()
    }
}

/// The tables behind `accounts`, open; null where a statement has to do it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Open {
    pub tokens: pg_sys::Relation,
    pub pending: pg_sys::Relation,
}

const CLOSED: Open = Open {
    tokens: std::ptr::null_mut(),
    pending: std::ptr::null_mut(),
};

/// Looks for the ways into the tables of the schema that this function is in, whose tables stay locked.
fn look_for_ways(function: pg_sys::Oid) -> Option<Ways> {
    // SAFETY: in a transaction; the name is NUL-terminated.
    unsafe {
        let schema = pg_sys::get_func_namespace(function);
        let accounts = pg_sys::get_relname_relid(c"accounts".as_ptr(), schema);
        let tokens = Table::open(schema, TOKENS.table, way::LOCK).ok()?;
        let pending = Table::open(schema, PENDING.table, way::LOCK).ok()?;
        way::watch([accounts, tokens.id(), pending.id()]);
        let changes = way::changes();
        let into_tokens =
            Way::into(tokens.relation(), schema, &TOKENS).and_then(|(way, referred)| {
                let action = tokens.column(c"action", Kind::Enum).ok()?;
                let action = tokens.label(action, c"activation").ok()?;
                Some((way, referred?, pg_sys::Datum::from(action)))
            });
        let into_pending = Way::into(pending.relation(), schema, &PENDING).map(|(way, _)| way);
        let (tokens, pending) = (tokens.id(), pending.id());
        Some(Ways {
            changes,
            accounts,
            tokens,
            pending,
            into_tokens,
            into_pending,
        })
    }
}

/// The ways as they are now; their tables are not locked yet.
fn ways(function: pg_sys::Oid) -> Option<Ways> {
    let known = WAYS.get().filter(|ways| ways.changes == way::changes());
    if known.is_none() {
        WAYS.set(look_for_ways(function));
    }
    WAYS.get()
}

/// Opens the tables that are stored in without a statement, if that may be.
fn open_ways(fcinfo: pg_sys::FunctionCallInfo, function: Function, found: Found) -> Option<Open> {
    // SAFETY: `find` saw that it is a trigger's call; the tables are locked before they are used.
    unsafe {
        if !way::may_write() {
            return None;
        }
        let ways = ways((*(*fcinfo).flinfo).fn_oid)?;
        let relation = (*(*fcinfo).context.cast::<pg_sys::TriggerData>()).tg_relation;
        let mut open = CLOSED;
        ways.into_pending?;
        if let Function::Issue = function {
            let (_, referred, _) = ways.into_tokens?;
            let is_own = (*relation).rd_id == ways.accounts
                && referred.table == ways.accounts
                && (found.untouched || referred.is_own(relation, found.id));
            if !is_own {
                return None;
            }
            open.tokens = pg_sys::table_open(ways.tokens, way::LOCK);
        } else if (*relation).rd_id != ways.tokens {
            return None;
        }
        open.pending = pg_sys::table_open(ways.pending, way::LOCK);
        // A change that came in before the lock was had.
        if ways.changes != way::changes() {
            close(open);
            return None;
        }
        Some(open)
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn open(
    fcinfo: pg_sys::FunctionCallInfo,
    function: Function,
    found: Found,
) -> Open {
    open_ways(fcinfo, function, found).unwrap_or(CLOSED)
}

/// Closes them, and lets what follows see what was stored.
#[pg_guard]
pub extern "C-unwind" fn close(open: Open) {
    let keep = pg_sys::NoLock as pg_sys::LOCKMODE;
    // SAFETY: open, or null.
    unsafe {
        for relation in [open.tokens, open.pending] {
            if !relation.is_null() {
                pg_sys::table_close(relation, keep);
            }
        }
        pg_sys::CommandCounterIncrement();
    }
}
