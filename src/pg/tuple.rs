//! A trigger's row and table, as text in the server's encoding.

use pgrx::prelude::*;

use super::encoding::EncodedText;

/// Returns the schema of the trigger's table, quoted as an SQL identifier if necessary.
pub fn schema_of_table(trigger: &PgTrigger<'_>) -> Option<EncodedText> {
    // SAFETY: the table exists as long as the trigger runs; quote_identifier gets a name, not null.
    unsafe {
        let schema = (*(*trigger.trigger_data().tg_relation).rd_rel).relnamespace;
        let name = pg_sys::get_namespace_name(schema);
        EncodedText::from_ptr(if name.is_null() {
            name
        } else {
            pg_sys::quote_identifier(name)
        })
    }
}

/// Returns a text column of the new row, as bytes in the server's encoding; `None` if null, missing or of another type.
pub fn text_of_new_row<'a>(trigger: &'a PgTrigger<'a>, column: &str) -> Option<&'a [u8]> {
    let row = trigger.new()?;
    let (number, column) = row.get_attribute_by_name(column)?;
    if column.atttypid != pg_sys::TEXTOID {
        return None;
    }
    // SAFETY: table and row exist as long as the trigger runs; text has the same storage format as bytea.
    unsafe {
        let shape = (*trigger.trigger_data().tg_relation).rd_att;
        let datum = pgrx::htup::heap_getattr_raw(row.into_pg(), number, shape)?;
        <&[u8]>::from_polymorphic_datum(datum, false, pg_sys::BYTEAOID)
    }
}
