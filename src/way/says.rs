//! What a table's triggers and expressions say: its defaults, constraints and the predicates of its indexes.
//!
//! They are compared as the server writes them, which is the same for all that mean the same here: a constraint that
//! somebody made anew under another name is known, and one that was changed is not.

use std::ffi::CStr;

use pgrx::prelude::*;

use crate::trigger::bytes;

// The server's own, to be called by the server.
unsafe extern "C-unwind" {
    fn pg_get_triggerdef(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
}

/// What an index's predicate says of the rows that the library brings.
pub enum Predicate {
    /// They are in the index. So they are when there is no predicate.
    True,
    /// They are not.
    False,
    /// That takes evaluating it.
    Other,
}

/// # Safety
/// As of [`super::Way::into`]; the index is one of the relation, and open.
pub unsafe fn predicate(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    known: &[(&str, bool)],
) -> Predicate {
    // SAFETY: by the caller's word.
    unsafe {
        let clauses = pg_sys::RelationGetIndexPredicate(index);
        if clauses.is_null() {
            return Predicate::True;
        }
        let text = written(relation, pg_sys::make_ands_explicit(clauses).cast());
        match known.iter().find(|(known, _)| *known == text) {
            Some((_, true)) => Predicate::True,
            Some((_, false)) => Predicate::False,
            None => Predicate::Other,
        }
    }
}

/// Whether every CHECK constraint is one of these.
///
/// # Safety
/// As of [`super::Way::into`].
pub unsafe fn checks_are_known(relation: pg_sys::Relation, known: &[&str]) -> bool {
    // SAFETY: by the caller's word; there are `num_check` of them, each with its expression.
    unsafe {
        let constraints = (*(*relation).rd_att).constr;
        if constraints.is_null() || (*constraints).num_check == 0 {
            return true;
        }
        std::slice::from_raw_parts((*constraints).check, usize::from((*constraints).num_check))
            .iter()
            .all(|check| {
                let text = written(relation, pg_sys::stringToNode(check.ccbin).cast());
                known.contains(&text.as_str())
            })
    }
}

/// Whether the default of a column is the one that is known, if one is.
///
/// # Safety
/// As of [`super::Way::into`]; the expression is the default of this column, or null.
pub unsafe fn default_is_known(
    relation: pg_sys::Relation,
    column: &CStr,
    expression: *mut pg_sys::Node,
    known: &[(&CStr, &str)],
) -> bool {
    let Some((_, text)) = known.iter().find(|(known, _)| *known == column) else {
        return true;
    };
    // SAFETY: by the caller's word.
    !expression.is_null() && unsafe { written(relation, expression) == *text }
}

/// A trigger's definition.
///
/// # Safety
/// In a transaction; there is such a trigger.
pub unsafe fn trigger(oid: pg_sys::Oid, schema: pg_sys::Oid) -> String {
    // SAFETY: by the caller's word; the function is called with what it takes, and returns a text.
    unsafe {
        let text = pg_sys::DirectFunctionCall1Coll(
            Some(pg_get_triggerdef),
            pg_sys::InvalidOid,
            pg_sys::Datum::from(oid),
        );
        without_schema(&String::from_utf8_lossy(bytes(&text)), schema)
    }
}

/// An expression over the relation's columns.
///
/// # Safety
/// As of [`super::Way::into`].
unsafe fn written(relation: pg_sys::Relation, node: *mut pg_sys::Node) -> String {
    // SAFETY: by the caller's word; the string that the server gives is NUL-terminated.
    unsafe {
        let class = &*(*relation).rd_rel;
        let context = pg_sys::deparse_context_for(class.relname.data.as_ptr(), (*relation).rd_id);
        let text = CStr::from_ptr(pg_sys::deparse_expression(node, context, false, false));
        without_schema(&text.to_string_lossy(), class.relnamespace)
    }
}

/// In one line and without the name of this schema.
///
/// # Safety
/// In a transaction; there is such a schema.
unsafe fn without_schema(text: &str, schema: pg_sys::Oid) -> String {
    // SAFETY: by the caller's word; the names are NUL-terminated.
    unsafe {
        let schema = CStr::from_ptr(pg_sys::quote_identifier(pg_sys::get_namespace_name(schema)));
        let text = text.replace(&format!("{}.", schema.to_string_lossy()), "");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Has the server write each name with its schema, but those of its own, until this goes.
pub struct FullNames(std::ffi::c_int);

impl FullNames {
    pub fn write() -> Self {
        // SAFETY: in a transaction; the strings are NUL-terminated, and the setting takes any such value.
        unsafe {
            let level = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                c"pg_catalog, pg_temp".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            Self(level)
        }
    }
}

impl Drop for FullNames {
    fn drop(&mut self) {
        // SAFETY: the level that was opened.
        unsafe { pg_sys::AtEOXact_GUC(true, self.0) };
    }
}
