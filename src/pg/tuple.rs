//! A trigger's row and table, as text in the server's encoding.

use pgrx::prelude::*;

use super::encoding::EncodedText;

/// The schema of the table, as SQL writes it.
pub fn schema_of_table(trigger: &PgTrigger<'_>) -> Option<EncodedText> {
    // SAFETY: the table is there for as long as the trigger runs; quote_identifier is given a name.
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
