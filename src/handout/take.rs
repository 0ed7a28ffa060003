//! Taking tokens out of `pending`, see `_pick` of `sql/50_handout.sql`.
//!
//! A row is deleted where it is found. Whoever else has it, in whatever way, keeps it: then it is passed over, and
//! nobody waits (I3). So there is no lock on a row to be taken, logged and given up first.

use std::collections::HashSet;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::with_new_snapshot;
use crate::eligible::open_sources;
use crate::scan;
use crate::table::{Index, Table, condition, schema_of};
use crate::trigger::{Column, Kind};
use crate::way::may_write;

/// The lock of a DELETE.
const DELETING: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;

/// `pending`, open to be taken from.
struct Queue {
    index: Index,
    pending: Table,
    lane: Column,
    token: Column,
}

impl Queue {
    /// `None` where a statement has to do it.
    ///
    /// # Safety
    /// In a statement; the tables of the library are in this schema.
    unsafe fn open(schema: pg_sys::Oid) -> Option<Self> {
        if !may_write() {
            return None;
        }
        // SAFETY: by the caller's word.
        let pending = unsafe {
            // These two are read next.
            open_sources(schema).ok()?;
            Table::open(schema, c"pending", DELETING).ok()?
        };
        let may = pending.may(pg_sys::ACL_SELECT | pg_sys::ACL_UPDATE | pg_sys::ACL_DELETE);
        if !may || !pending.is_plain() || pending.has_triggers(pg_sys::TRIGGER_TYPE_DELETE) {
            return None;
        }
        // SAFETY: the relation is open.
        unsafe {
            // What is published must be told by a key.
            pg_sys::CheckCmdReplicaIdentity(pending.relation(), pg_sys::CmdType::CMD_DELETE);
        }
        let lane = pending.column(c"lane", Kind::SmallInt).ok()?;
        let token = pending.column(c"token", Kind::BigInt).ok()?;
        let index = pending.unique_index(&[lane, token])?;
        Some(Self {
            index,
            pending,
            lane,
            token,
        })
    }

    /// Takes up to so many tokens of a lane, behind this one and in their order; returns the last.
    ///
    /// # Errors
    /// 40001, as a statement has it, when somebody took one of them since this transaction's snapshot.
    ///
    /// # Safety
    /// As of [`Self::open`].
    unsafe fn take_lane(
        &self,
        lane: i16,
        behind: i64,
        wanted: usize,
        taken: &mut Vec<i64>,
    ) -> Result<Option<i64>, ErrorReport> {
        let mut last = None;
        if taken.len() >= wanted {
            return Ok(last);
        }
        // SAFETY: by the caller's word. Table and index are open, and their columns of these types, which are those of
        // the operators. A tuple is used before the next one is asked for.
        unsafe {
            let mut keys = [
                condition(
                    self.lane.number(),
                    pg_sys::BTEqualStrategyNumber,
                    pg_sys::F_INT2EQ,
                    pg_sys::Datum::from(lane),
                ),
                condition(
                    self.token.number(),
                    pg_sys::BTGreaterStrategyNumber,
                    pg_sys::F_INT8GT,
                    pg_sys::Datum::from(behind),
                ),
            ];
            let pending = self.pending.relation();
            let now = pg_sys::GetCurrentCommandId(true);
            let scan = pg_sys::systable_beginscan_ordered(
                pending,
                self.index.relation(),
                pg_sys::GetActiveSnapshot(),
                2,
                keys.as_mut_ptr(),
            );
            while taken.len() < wanted {
                pg_sys::check_for_interrupts!();
                let row = pg_sys::systable_getnext_ordered(
                    scan,
                    pg_sys::ScanDirection::ForwardScanDirection,
                );
                if row.is_null() {
                    break;
                }
                let Some(token) = self.token.value(row, (*pending).rd_att) else {
                    continue;
                };
                let mut failure: pg_sys::TM_FailureData = std::mem::zeroed();
                let result = pg_sys::heap_delete(
                    pending,
                    &raw mut (*row).t_self,
                    now,
                    std::ptr::null_mut(),
                    // One that this transaction has locked itself is taken; the server waits for nobody there.
                    is_locked_by_us((*row).t_data),
                    &raw mut failure,
                    false,
                );
                match result {
                    pg_sys::TM_Result::TM_Ok => {
                        let token = token.value() as i64;
                        taken.push(token);
                        last = Some(token);
                    }
                    pg_sys::TM_Result::TM_Updated | pg_sys::TM_Result::TM_Deleted
                        if pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 =>
                    {
                        return Err(taken_since());
                    }
                    _ => {}
                }
            }
            pg_sys::systable_endscan_ordered(scan);
        }
        Ok(last)
    }
}

/// Whether this transaction alone has a lock on a row, and nothing else was done to it.
///
/// # Safety
/// The head of a row that is pinned.
unsafe fn is_locked_by_us(head: pg_sys::HeapTupleHeader) -> bool {
    // SAFETY: by the caller's word; others may change it meanwhile, each field at once.
    unsafe {
        let about = u32::from((*head).t_infomask);
        let is_lock = about & pg_sys::HEAP_XMAX_LOCK_ONLY != 0
            && about & (pg_sys::HEAP_XMAX_IS_MULTI | pg_sys::HEAP_XMAX_INVALID) == 0;
        is_lock && pg_sys::TransactionIdIsCurrentTransactionId((*head).t_choice.t_heap.t_xmax)
    }
}

fn taken_since() -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
        "could not serialize access due to concurrent update",
        function_name!(),
    )
}

/// `_take(integer)` of `50_handout.sql`.
#[pg_extern(sql = false)]
fn _take(wanted: i32, fcinfo: pg_sys::FunctionCallInfo) -> Result<Option<Vec<i64>>, ErrorReport> {
    // SAFETY: what the server called with, for a function in the schema of the library's tables.
    let queue = unsafe { Queue::open(schema_of(fcinfo)) };
    let Some(queue) = queue else { return Ok(None) };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut taken = Vec::new();
    let mut sweep = scan::begin()?;
    loop {
        let mut lane = |lane: i16| {
            let behind = if sweep { 0 } else { scan::position(lane) };
            // SAFETY: as above.
            unsafe { queue.take_lane(lane, behind, wanted, &mut taken) }
        };
        let high = with_new_snapshot(|| Ok::<_, ErrorReport>([lane(0)?, lane(1)?]))?;
        scan::end(sweep, high);
        // Too few above this session's position says nothing about what lies below it: look there before anybody is
        // told that the queue is empty.
        if sweep || taken.len() >= wanted {
            // Nothing queues a token in both lanes, but whoever may write here can.
            let mut seen = HashSet::new();
            taken.retain(|token| seen.insert(*token));
            return Ok(Some(taken));
        }
        sweep = true;
    }
}

#[pg_extern(sql = false)]
fn _highest(tokens: Vec<i64>) -> Option<i64> {
    tokens.into_iter().max()
}
