//! What a table's triggers of INSERT and its foreign key are, as far as the library may do without them.

use pgrx::prelude::*;

use super::{Reference, Referred, Wanted, length, says};

/// Whether the triggers of INSERT are those that are known; and the key that the foreign key refers to.
///
/// # Safety
/// As of [`super::Way::into`].
pub unsafe fn triggers(
    relation: pg_sys::Relation,
    schema: pg_sys::Oid,
    wanted: &Wanted,
) -> Option<Option<Referred>> {
    // SAFETY: by the caller's word; there are `numtriggers` of them. They are copied first: each look into the catalog
    // may have the server read the table's description anew, and free what was there.
    unsafe {
        let mut seen = 0;
        let mut index = None;
        let all = pg_sys::CopyTriggerDesc((*relation).trigdesc);
        if !all.is_null() {
            let count = usize::try_from((*all).numtriggers).ok()?;
            for trigger in std::slice::from_raw_parts((*all).triggers, count) {
                if u32::from(trigger.tgtype.cast_unsigned()) & pg_sys::TRIGGER_TYPE_INSERT == 0 {
                    continue;
                }
                if trigger.tgenabled as u8 != pg_sys::TRIGGER_FIRES_ON_ORIGIN
                    || trigger.tgdeferrable
                {
                    return None;
                }
                if trigger.tgisinternal {
                    let is_first = index.replace(trigger.tgconstrindid).is_none();
                    if trigger.tgfoid.to_u32() != pg_sys::F_RI_FKEY_CHECK_INS || !is_first {
                        return None;
                    }
                    continue;
                }
                if !wanted
                    .triggers
                    .contains(&says::trigger(trigger.tgoid, schema).as_str())
                {
                    return None;
                }
                seen += 1;
            }
        }
        if seen != wanted.triggers.len() {
            return None;
        }
        match (&wanted.reference, index) {
            (None, None) => Some(None),
            (Some(reference), Some(index)) => refers(relation, schema, reference, index).map(Some),
            _ => None,
        }
    }
}

/// What the one foreign key refers to, if it is as it should be.
///
/// # Safety
/// As of [`super::Way::into`].
unsafe fn refers(
    relation: pg_sys::Relation,
    schema: pg_sys::Oid,
    reference: &Reference,
    index: pg_sys::Oid,
) -> Option<Referred> {
    // SAFETY: by the caller's word; the names are NUL-terminated.
    unsafe {
        let keys = pg_sys::RelationGetFKeyList(relation);
        if length(keys) != 1 {
            return None;
        }
        // Copied, as above.
        let key = *pg_sys::list_nth(keys, 0).cast::<pg_sys::ForeignKeyCacheInfo>();
        let table = pg_sys::get_relname_relid(reference.table.as_ptr(), schema);
        let column = pg_sys::get_attnum(table, reference.key.as_ptr());
        let own = pg_sys::get_attnum((*relation).rd_id, reference.column.as_ptr());
        let as_wanted = key.nkeys == 1
            && key.confrelid == table
            && key.confkey[0] == column
            && key.conkey[0] == own
            && pg_sys::get_atttype(table, column) == pg_sys::INT8OID;
        as_wanted.then_some(Referred {
            table,
            index,
            column,
        })
    }
}
