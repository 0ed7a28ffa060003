//! Conversion between the encoding of the database and UTF-8; no other file converts.
//!
//! pgrx treats all text as UTF-8. This file calls the server's own conversions in the mode that raises no error: the
//! caller must reject text that the other encoding cannot represent. The encoding of the bytes in a SQL_ASCII database
//! is unknown; valid UTF-8 is treated as UTF-8.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::prelude::*;

use super::transaction;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;
const SQL_ASCII: c_int = pg_sys::pg_enc::PG_SQL_ASCII as c_int;

/// Maximum size of the output buffer in bytes. One call converts at most a quarter as many bytes of input.
const BUFFER: usize = 64 * 1024;

fn database_encoding() -> c_int {
    // SAFETY: reads a variable of this process that is set before any function can be called.
    unsafe { pg_sys::GetDatabaseEncoding() }
}

/// Whether the encoding of the database is known, that is, not SQL_ASCII.
pub fn is_known() -> bool {
    database_encoding() != SQL_ASCII
}

/// Whether the encoding of the database is UTF-8.
pub fn is_utf8() -> bool {
    database_encoding() == UTF8
}

/// Converts text of the database to UTF-8. `None` if its bytes are invalid or `convert` fails.
pub fn to_utf8(text: &[u8]) -> Option<Cow<'_, str>> {
    let encoding = database_encoding();
    if text.is_ascii() || encoding == UTF8 || encoding == SQL_ASCII {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    String::from_utf8(convert(text, encoding, UTF8)?)
        .ok()
        .map(Cow::Owned)
}

/// Converts UTF-8 to text of the database. `None` if it contains a NUL or `convert` fails.
pub fn from_utf8(text: &str) -> Option<Cow<'_, [u8]>> {
    let encoding = database_encoding();
    if text.contains('\0') {
        None
    } else if text.is_ascii() || encoding == UTF8 || encoding == SQL_ASCII {
        Some(Cow::Borrowed(text.as_bytes()))
    } else {
        convert(text.as_bytes(), UTF8, encoding).map(Cow::Owned)
    }
}

/// As [`from_utf8`], with a question mark for each character that it cannot convert.
pub fn from_utf8_lossy(text: &str) -> Cow<'_, [u8]> {
    from_utf8(text).unwrap_or_else(|| {
        let mut known = Vec::with_capacity(text.len());
        for character in text.chars() {
            let mut bytes = [0; 4];
            match from_utf8(character.encode_utf8(&mut bytes)) {
                Some(converted) => known.extend_from_slice(&converted),
                None => known.push(b'?'),
            }
        }
        Cow::Owned(known)
    })
}

/// A value of type text. A query result is `None` if UTF-8 cannot represent it. In a query argument, a character that
/// the database cannot represent becomes a question mark.
pub struct Text(pub Option<String>);

/// A value of type text[], read as [`Text`]; `None` also if an element is null.
pub struct Texts(pub Option<Vec<String>>);

impl FromDatum for Text {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        of_type: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: as the caller promises; text can be read as bytea.
        let text = unsafe { <&[u8]>::from_polymorphic_datum(datum, is_null, of_type) }?;
        Some(Self(to_utf8(text).map(Cow::into_owned)))
    }
}

impl IntoDatum for Text {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        from_utf8_lossy(&self.0?).into_owned().into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

impl FromDatum for Texts {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        of_type: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: as the caller promises.
        let texts = unsafe { Array::<&[u8]>::from_polymorphic_datum(datum, is_null, of_type) }?;
        let read = |text: Option<&[u8]>| Some(to_utf8(text?)?.into_owned());
        Some(Self(texts.iter().map(read).collect()))
    }
}

impl IntoDatum for Texts {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let texts = self.0?.into_iter();
        texts
            .map(|text| Text(Some(text)))
            .collect::<Vec<_>>()
            .into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTARRAYOID
    }
}

/// Text in the encoding of the database, such as the name of an object; it is not converted.
pub struct EncodedText(CString);

impl EncodedText {
    /// Copies a string of the server; `None` for a null pointer.
    ///
    /// # Safety
    /// `text` is NUL-terminated or null.
    pub(super) unsafe fn from_ptr(text: *const c_char) -> Option<Self> {
        // SAFETY: as the caller promises; copied here.
        (!text.is_null()).then(|| unsafe { Self(CStr::from_ptr(text).to_owned()) })
    }

    /// Returns this text between `before` and `after`, which must be ASCII.
    pub fn between(&self, before: &str, after: &str) -> CString {
        let text = [before.as_bytes(), self.0.to_bytes(), after.as_bytes()].concat();
        // No part has a NUL.
        CString::new(text).unwrap_or_default()
    }

    /// The text itself.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Returns a name from a shared catalog as UTF-8. The server does not convert such a name: every database reads the
    /// bytes that were written in another one. Valid UTF-8 is treated as UTF-8, other bytes as text of this database.
    /// Bytes that are neither become replacement characters.
    pub fn shared_name(&self) -> String {
        let bytes = self.0.to_bytes();
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .ok()
            .or_else(|| to_utf8(bytes).map(Cow::into_owned))
            .unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned())
    }
}

impl FromDatum for EncodedText {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        of_type: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: as the caller promises; text can be read as bytea, and contains no NUL.
        let text = unsafe { <&[u8]>::from_polymorphic_datum(datum, is_null, of_type) }?;
        CString::new(text).ok().map(Self)
    }
}

impl IntoDatum for EncodedText {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        self.0.into_bytes().into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

/// An element of a result of type text[], in the encoding of the database. An array of bytes would be one of bytea.
pub struct Element(pub Vec<u8>);

impl IntoDatum for Element {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        self.0.into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

pgrx::pgrx_sql_entity_graph::impl_sql_translatable!(Element, "text");

/// Converts all of `text`, which must contain no NUL, to another encoding. `None` if a character cannot be converted,
/// if there is no conversion, or outside a transaction, where the catalog cannot be read.
fn convert(text: &[u8], from: c_int, to: c_int) -> Option<Vec<u8>> {
    if !transaction::is_open() {
        return None;
    }
    // SAFETY: reads the catalog, in a transaction.
    let conversion = unsafe { pg_sys::FindDefaultConversionProc(from, to) };
    if conversion == pg_sys::InvalidOid {
        return None;
    }
    let mut converted = Vec::with_capacity(text.len());
    let mut buffer = vec![0_u8; BUFFER.min(4 * text.len() + 64)];
    let mut rest = text;
    while !rest.is_empty() {
        let length = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
        let size = c_int::try_from(buffer.len()).unwrap_or(c_int::MAX);
        // SAFETY: reads at most `length` bytes, and writes at most `size` bytes, including a NUL at the end. It
        // converts as many input bytes as fit, up to the first that it cannot convert, and returns their number.
        let (taken, made) = unsafe {
            let taken = pg_sys::pg_do_encoding_conversion_buf(
                conversion,
                from,
                to,
                rest.as_ptr().cast_mut(),
                length,
                buffer.as_mut_ptr(),
                size,
                true,
            );
            (taken, CStr::from_ptr(buffer.as_ptr().cast()))
        };
        let taken = usize::try_from(taken).ok().filter(|taken| *taken > 0)?;
        converted.extend_from_slice(made.to_bytes());
        rest = rest.get(taken..)?;
    }
    Some(converted)
}
