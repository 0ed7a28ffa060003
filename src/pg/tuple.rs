//! Columns of a trigger's row, and text in the server's encoding.

use pgrx::prelude::*;

/// A column of the new row that is text, as bytes in the server's encoding; `None` when it is null or of another type.
pub fn text_of_new_row<'a>(trigger: &'a PgTrigger<'a>, column: &str) -> Option<&'a [u8]> {
    let row = trigger.new()?;
    let (number, column) = row.get_attribute_by_name(column)?;
    if column.atttypid != pg_sys::TEXTOID {
        return None;
    }
    // SAFETY: table and row are there for as long as the trigger runs; text is stored as bytea is.
    unsafe {
        let shape = (*trigger.trigger_data().tg_relation).rd_att;
        let datum = pgrx::htup::heap_getattr_raw(row.into_pg(), number, shape)?;
        <&[u8]>::from_polymorphic_datum(datum, false, pg_sys::BYTEAOID)
    }
}
