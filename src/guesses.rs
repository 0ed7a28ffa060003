//! Judging codes, and counting the wrong ones where no ROLLBACK reaches.
//!
//! A recovery token is locked after some wrong codes. The calls that count them run in the application's
//! transaction, and whoever guesses would have it rolled back, or its session killed. So the count is not
//! written as a new version of the row but into the row as it stands, as PostgreSQL does with the value of a
//! sequence: the page is changed under its lock, logged by the server's generic WAL records, and on disk
//! before the caller learns that the code was wrong. Crash recovery, physical standbys and base backups have
//! the count like everything else.
//!
//! The code is compared when all that could fail is done: the row is found, its page is locked (which holds
//! interrupts off) and the record is begun. Whoever could make the call fail or be cancelled between comparing and
//! counting would learn from how it failed that the code was wrong, and guess on for nothing.
//!
//! Two bytes of fixed length are all that ever changes. Readers see the old number or the new one. A caller
//! holds the row locked, so nobody makes a new version of it from the old number at the same time.

use std::ffi::c_char;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::server;
use crate::signing::{self, Text};

/// The column with the count, `smallint NOT NULL`.
const COLUMN: &std::ffi::CStr = c"wrong_codes";
/// Its table, in the schema of the function that is called.
const TABLE: &std::ffi::CStr = c"tokens";
/// `LP_NORMAL` of itemid.h: the line pointer leads to a tuple.
const LP_NORMAL: u32 = 1;

/// What came of a code.
enum Judged {
    Right,
    /// Counted: so many now; where in the WAL that is.
    Wrong(i16, pg_sys::XLogRecPtr),
    /// Not looked at.
    Locked,
}

#[pg_extern(sql = false)]
fn _try_code(
    place: pg_sys::ItemPointerData,
    token: i64,
    code: Text<'_>,
    given: Text<'_>,
    guesses: i16,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Result<&'static str, ErrorReport> {
    let codes = signing::code(code).zip(signing::code(given));
    let is_right = || codes.is_some_and(|(code, given)| code.is(given));
    // SAFETY: the server passes the call's own data. The relation is open and locked until the end of the
    // transaction, for as long as `relation` is used.
    let judged = unsafe {
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let table = pg_sys::get_relname_relid(TABLE.as_ptr(), schema);
        let column = pg_sys::get_attnum(table, COLUMN.as_ptr());
        if table == pg_sys::InvalidOid || column <= 0 {
            return Err(gone());
        }
        let relation = pg_sys::table_open(table, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
        let judged = judge(relation, place, token, column, guesses, is_right);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        judged
    };
    match judged {
        None => Err(gone()),
        Some(Judged::Right) => Ok("ok"),
        Some(Judged::Locked) => Ok("locked"),
        Some(Judged::Wrong(wrong, position)) => {
            // A crash must not take back what the caller is about to be told.
            // SAFETY: a position that was just written.
            unsafe { pg_sys::XLogFlush(position) };
            Ok(if wrong < guesses {
                "wrong_code"
            } else {
                "locked"
            })
        }
    }
}

fn gone() -> ErrorReport {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        "the token whose code was to be judged is not there",
        function_name!(),
    )
}

/// Asks whether the code is right, and adds one to the count of the token at `place` if it is not; asks nothing once
/// the count has come to `guesses`. `None` when another tuple, or none, is there.
///
/// # Safety
/// `relation` is open, and `column` is one of its columns. `is_right` calls nothing of the server's.
unsafe fn judge(
    relation: pg_sys::Relation,
    place: pg_sys::ItemPointerData,
    token: i64,
    column: pg_sys::AttrNumber,
    guesses: i16,
    is_right: impl FnOnce() -> bool,
) -> Option<Judged> {
    let block = u32::from(place.ip_blkid.bi_hi) << 16 | u32::from(place.ip_blkid.bi_lo);
    // Reading beyond the end fails, or, for the highest number there is, appends a page.
    // SAFETY: the relation is open.
    let blocks = unsafe {
        pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM)
    };
    if block >= blocks {
        return None;
    }
    // SAFETY: the buffer stays pinned and exclusively locked until it is released below, and the page is
    // changed in the copy that the generic record hands out. The server's own errors release both.
    unsafe {
        let buffer = pg_sys::ReadBuffer(relation, block);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE as i32);
        let record = pg_sys::GenericXLogStart(relation);
        let page = pg_sys::GenericXLogRegisterBuffer(record, buffer, 0);
        let count = find(page, place.ip_posid, token, (*relation).rd_att, column);
        let judged = match count.map(|count| (count, count.read_unaligned())) {
            Some((count, wrong)) if wrong < guesses && !is_right() => {
                count.write_unaligned(wrong + 1);
                Some(Judged::Wrong(wrong + 1, pg_sys::GenericXLogFinish(record)))
            }
            seen => {
                pg_sys::GenericXLogAbort(record);
                seen.map(|(_, wrong)| match wrong < guesses {
                    true => Judged::Right,
                    false => Judged::Locked,
                })
            }
        };
        pg_sys::UnlockReleaseBuffer(buffer);
        judged
    }
}

/// Where in the page the count of this token is.
///
/// # Safety
/// `page` is a page of the table that `descriptor` describes, not changed by others meanwhile.
unsafe fn find(
    page: pg_sys::Page,
    item: pg_sys::OffsetNumber,
    token: i64,
    descriptor: pg_sys::TupleDesc,
    column: pg_sys::AttrNumber,
) -> Option<*mut i16> {
    // SAFETY: the item number is compared with how many there are before it is used; a normal item has the
    // place and the length of a whole tuple; offsets in it follow from its own header and the table's
    // descriptor, and stay below its length.
    unsafe {
        if item == 0 || item > pg_sys::PageGetMaxOffsetNumber(page) {
            return None;
        }
        let pointer = *pg_sys::PageGetItemId(page, item);
        if pointer.lp_flags() != LP_NORMAL {
            return None;
        }
        let tuple = page.add(pointer.lp_off() as usize);
        let header = tuple.cast::<pg_sys::HeapTupleHeaderData>();
        let data = tuple.add(usize::from((*header).t_hoff));
        // The id is the first column.
        if data.cast::<i64>().read_unaligned() != token {
            return None;
        }
        let present = i32::from((*header).t_infomask2) & pg_sys::HEAP_NATTS_MASK as i32;
        let offset = offset_of(header, data, descriptor, column, present)?;
        let end = usize::from((*header).t_hoff) + offset + size_of::<i16>();
        (end <= pointer.lp_len() as usize).then(|| data.add(offset).cast())
    }
}

/// How far into a tuple's data a column of fixed length is; `None` when it is null or not stored.
///
/// # Safety
/// `header` and `data` are those of one tuple with `present` columns, which `descriptor` describes.
unsafe fn offset_of(
    header: *mut pg_sys::HeapTupleHeaderData,
    data: *mut c_char,
    descriptor: pg_sys::TupleDesc,
    column: pg_sys::AttrNumber,
    present: i32,
) -> Option<usize> {
    // SAFETY: columns are walked in their order and no further than the tuple has them; the null bitmap has
    // a bit for each when the header says that there is one.
    unsafe {
        if i32::from(column) > present {
            return None;
        }
        let has_nulls = (*header).t_infomask & pg_sys::HEAP_HASNULL as u16 != 0;
        let bits = (*header).t_bits.as_ptr();
        let mut offset = 0;
        for index in 0..usize::try_from(column).ok()? {
            let last = index + 1 == usize::try_from(column).ok()?;
            if has_nulls && *bits.add(index / 8) & 1 << (index % 8) == 0 {
                if last {
                    return None;
                }
                continue;
            }
            let attribute = server::attribute(descriptor, index);
            // A short varlena is not aligned, and its first byte is never that of padding.
            if (*attribute).attlen != -1 || *data.add(offset) == 0 {
                offset = offset.next_multiple_of(alignment((*attribute).attalign));
            }
            if last {
                return Some(offset);
            }
            offset += match (*attribute).attlen {
                -1 => pgrx::varsize_any(data.add(offset).cast()),
                fixed => usize::try_from(fixed).ok()?,
            };
        }
        None
    }
}

/// Bytes of a pg_attribute.attalign.
fn alignment(code: c_char) -> usize {
    match u8::try_from(code).unwrap_or_default() {
        b'c' => 1,
        b's' => 2,
        b'i' => 4,
        _ => 8,
    }
}
