//! A row of the library's own, stored without a statement; see [`super`] for when that may be.
//!
//! What may fail here (a key that exists already, a sequence that has come to its end, a domain that refuses a value) is
//! raised without pgrx's guard, which drops a part of it, by frames that own nothing. A trigger lets the client see it
//! whole; callers that own something put a guard around the call.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use pgrx::prelude::*;

use super::{COLUMNS, INDEXES, Indexes, KEYS, LOCK, Referred, Way};
use crate::table::condition;

// The server's own, without the guard that pgrx wraps them in: see above.
unsafe extern "C-unwind" {
    fn nextval_internal(sequence: pg_sys::Oid, check_permissions: bool) -> i64;
    fn heap_form_tuple(
        descriptor: pg_sys::TupleDesc,
        values: *mut pg_sys::Datum,
        nulls: *mut bool,
    ) -> pg_sys::HeapTuple;
    fn domain_check(
        value: pg_sys::Datum,
        is_null: bool,
        domain: pg_sys::Oid,
        state: *mut *mut c_void,
        memory: pg_sys::MemoryContext,
    );
    fn simple_heap_insert(relation: pg_sys::Relation, tuple: pg_sys::HeapTuple);
    fn index_open(index: pg_sys::Oid, lock: c_int) -> pg_sys::Relation;
    fn index_close(index: pg_sys::Relation, lock: c_int);
    fn index_insert(
        index: pg_sys::Relation,
        values: *mut pg_sys::Datum,
        nulls: *mut bool,
        place: pg_sys::ItemPointer,
        relation: pg_sys::Relation,
        check: pg_sys::IndexUniqueCheck::Type,
        unchanged: bool,
        info: *mut pg_sys::IndexInfo,
    ) -> bool;
}

/// More domains than a session stores values of.
const DOMAINS: usize = 16;

thread_local! {
    /// What the server keeps of a domain, so as not to look at its constraints anew for each value.
    static STATES: Cell<[(pg_sys::Oid, *mut c_void); DOMAINS]> =
        const { Cell::new([(pg_sys::InvalidOid, std::ptr::null_mut()); DOMAINS]) };
}

/// Raises what a domain has against a value.
///
/// # Safety
/// As of [`Way::next_id`]; the value is of the type under the domain.
unsafe fn check_domain(domain: pg_sys::Oid, value: pg_sys::Datum, is_null: bool) {
    let mut states = STATES.get();
    let place = states
        .iter()
        .position(|(known, _)| *known == domain || *known == pg_sys::InvalidOid);
    let mut none = std::ptr::null_mut();
    // SAFETY: by the caller's word. The state is null or of this domain, and the server notices when that has changed. It
    // lives as long as the process where there is a place for it, and else as long as the statement. No reference to a
    // place is held: what a constraint calls may come here again.
    unsafe {
        let (state, memory) = match place {
            Some(at) => {
                states[at].0 = domain;
                STATES.set(states);
                let all = STATES.with(Cell::as_ptr);
                (&raw mut (*all)[at].1, pg_sys::TopMemoryContext)
            }
            None => (&raw mut none, pg_sys::CurrentMemoryContext),
        };
        domain_check(value, is_null, domain, state, memory);
    }
}

impl Way {
    /// Whether the current user may have the next id.
    pub fn may_draw(&self) -> bool {
        // SAFETY: in a transaction.
        self.sequence == pg_sys::InvalidOid
            || unsafe {
                let rights = pg_sys::AclMode::from(pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE);
                let result = pg_sys::pg_class_aclcheck(self.sequence, pg_sys::GetUserId(), rights);
                result == pg_sys::AclResult::ACLCHECK_OK
            }
    }

    /// The next id of the table.
    ///
    /// # Safety
    /// In a transaction; the caller's frame and those up to the server's own own nothing.
    pub unsafe fn next_id(&self) -> i64 {
        // SAFETY: by the caller's word. Rights are not asked for: those who insert may be lent none.
        unsafe { nextval_internal(self.sequence, false) }
    }

    /// Gives all rows to come these values in the columns that were wanted last.
    ///
    /// A domain is asked here about what is the same in every row, and no more when one is stored.
    ///
    /// # Safety
    /// As of [`Self::next_id`]; the values are of the types that were wanted, and last as long as this.
    pub unsafe fn fix<const N: usize>(&mut self, values: [pg_sys::Datum; N]) {
        self.place_count -= N;
        let (brought, fixed) = self.places.split_at(self.place_count);
        for (value, &place) in values.into_iter().zip(fixed) {
            if place < COLUMNS {
                self.values[place] = value;
                self.nulls[place] = false;
            }
        }
        let mut left = 0;
        for at in 0..self.domain_count {
            let (column, domain) = self.domains[at];
            if brought.contains(&column) {
                self.domains[left] = (column, domain);
                left += 1;
            } else {
                // SAFETY: by the caller's word.
                unsafe { check_domain(domain, self.values[column], self.nulls[column]) };
            }
        }
        self.domain_count = left;
    }

    /// Opens the indexes that a row is entered in.
    ///
    /// # Safety
    /// As of [`Self::next_id`]; the table is open, and locked for an INSERT.
    pub unsafe fn open_indexes(&self) -> Indexes {
        let mut opened = [std::ptr::null_mut(); INDEXES];
        for (index, opened) in self.indexes().iter().zip(&mut opened) {
            // SAFETY: by the caller's word.
            *opened = unsafe { index_open(index.oid, LOCK) };
        }
        opened
    }

    /// # Safety
    /// As of [`Self::next_id`]; they were opened in [`Self::open_indexes`].
    pub unsafe fn close_indexes(&self, indexes: &Indexes) {
        for &index in indexes.iter().take(self.index_count) {
            // SAFETY: by the caller's word.
            unsafe { index_close(index, LOCK) };
        }
    }

    /// Stores a row of these values, in the order of the columns that were wanted.
    ///
    /// # Safety
    /// As of [`Self::next_id`]; the relation is that of this way, open and locked for an INSERT, and did not change
    /// since; the values are of the types that were wanted.
    pub unsafe fn store<const N: usize>(
        &self,
        relation: pg_sys::Relation,
        given: [pg_sys::Datum; N],
    ) {
        // SAFETY: by the caller's word.
        unsafe {
            let indexes = self.open_indexes();
            self.store_in(relation, &indexes, given);
            self.close_indexes(&indexes);
        }
    }

    /// As [`Self::store`], with the indexes open.
    ///
    /// # Safety
    /// As of [`Self::store`]; the indexes are those of [`Self::open_indexes`].
    pub unsafe fn store_in<const N: usize>(
        &self,
        relation: pg_sys::Relation,
        indexes: &Indexes,
        given: [pg_sys::Datum; N],
    ) {
        let mut values = self.values;
        let mut nulls = self.nulls;
        for (value, &place) in given.into_iter().zip(&self.places) {
            if place < COLUMNS {
                values[place] = value;
                nulls[place] = false;
            }
        }
        // SAFETY: by the caller's word; the arrays have room for all columns, and a row of our own is locked by nobody.
        unsafe {
            for &(column, domain) in self.domains() {
                if column < COLUMNS {
                    check_domain(domain, values[column], nulls[column]);
                }
            }
            let tuple =
                heap_form_tuple((*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            simple_heap_insert(relation, tuple);
            for (index, &opened) in self.indexes().iter().zip(indexes) {
                let mut key = [pg_sys::Datum::null(); KEYS];
                let mut key_nulls = [true; KEYS];
                let columns = index.columns.iter().take(index.column_count);
                for ((&column, value), null) in columns.zip(&mut key).zip(&mut key_nulls) {
                    if column < COLUMNS {
                        *value = values[column];
                        *null = nulls[column];
                    }
                }
                let check = if index.unique {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
                } else {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO
                };
                // A B-tree has no use for the last argument, as the server knows where it stores long values.
                index_insert(
                    opened,
                    key.as_mut_ptr(),
                    key_nulls.as_mut_ptr(),
                    &raw mut (*tuple).t_self,
                    relation,
                    check,
                    false,
                    std::ptr::null_mut(),
                );
            }
        }
    }
}

impl Referred {
    /// Whether there is a row with this key that this transaction made, and which nobody else can take away
    /// therefore.
    ///
    /// # Safety
    /// In a transaction; the relation is the table that is referred to, and open.
    pub unsafe fn is_own(&self, relation: pg_sys::Relation, key: i64) -> bool {
        // SAFETY: by the caller's word; the column is a bigint.
        unsafe {
            let mut wanted = condition(
                self.column,
                pg_sys::BTEqualStrategyNumber,
                pg_sys::F_INT8EQ,
                pg_sys::Datum::from(key),
            );
            let scan = pg_sys::systable_beginscan(
                relation,
                self.index,
                true,
                &raw mut pg_sys::SnapshotSelfData,
                1,
                &raw mut wanted,
            );
            let row = pg_sys::systable_getnext(scan);
            let found = !row.is_null()
                && pg_sys::TransactionIdIsCurrentTransactionId(
                    (*(*row).t_data).t_choice.t_heap.t_xmin,
                );
            pg_sys::systable_endscan(scan);
            found
        }
    }
}
