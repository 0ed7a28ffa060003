//! The encoding of the database: the one place where text of the server becomes UTF-8, and UTF-8 such text.
//!
//! pgrx takes any text for UTF-8. Here the server's own conversions do it, asked not to raise an error: what cannot be
//! said in the other encoding is for the caller to refuse. A database in SQL_ASCII does not say what its bytes
//! mean; those that are UTF-8 are taken for it.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::prelude::*;

use super::transaction;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;
const SQL_ASCII: c_int = pg_sys::pg_enc::PG_SQL_ASCII as c_int;

/// Bytes of the buffer for what was converted: a conversion takes at most a quarter of it at a time.
const BUFFER: usize = 64 * 1024;

fn database_encoding() -> c_int {
    // SAFETY: reads a variable of this process that is set before any function can be called.
    unsafe { pg_sys::GetDatabaseEncoding() }
}

/// Whether the database says what its bytes mean: all do but those in SQL_ASCII.
pub fn is_known() -> bool {
    database_encoding() != SQL_ASCII
}

/// Text of the database as UTF-8; `None` when it has no form there.
pub fn to_utf8(text: &[u8]) -> Option<Cow<'_, str>> {
    let encoding = database_encoding();
    if text.is_ascii() || encoding == UTF8 || encoding == SQL_ASCII {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    String::from_utf8(convert(text, encoding, UTF8)?)
        .ok()
        .map(Cow::Owned)
}

/// UTF-8 as text of the database; `None` when it has a character that the database has not, or a NUL.
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

/// As [`from_utf8`], with a question mark in the place of each character that the database has not.
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

/// A value of type text. As a result it is `None` when it has no form in UTF-8; as an argument, what the database
/// cannot say is a question mark.
pub struct Text(pub Option<String>);

/// A value of type text[] without nulls, read as [`Text`] is.
pub struct Texts(pub Option<Vec<String>>);

impl FromDatum for Text {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        of_type: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: as the caller promises; text is read like bytea.
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

/// Text as the database has it, such as the name of an object: read and passed on without a conversion.
pub struct EncodedText(CString);

impl EncodedText {
    /// From a string of the server's; `None` from its null pointer.
    ///
    /// # Safety
    /// `text` is NUL-terminated or null.
    pub(super) unsafe fn from_ptr(text: *const c_char) -> Option<Self> {
        // SAFETY: as the caller promises; copied here.
        (!text.is_null()).then(|| unsafe { Self(CStr::from_ptr(text).to_owned()) })
    }

    /// This text between two others, which are ASCII.
    pub fn between(&self, before: &str, after: &str) -> CString {
        let text = [before.as_bytes(), self.0.to_bytes(), after.as_bytes()].concat();
        // No part has a NUL.
        CString::new(text).unwrap_or_default()
    }

    /// The text itself.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// As UTF-8, if this is a name of a shared catalog. The server does not convert such a name: each database sees the
    /// bytes that it was given in another. Bytes that are UTF-8 are taken for it, others for text of this database. What
    /// is neither gets replacement characters.
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
        // SAFETY: as the caller promises; text is read like bytea, and has no NUL.
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

/// The characters in a text of the server's encoding.
pub fn characters(text: &[u8]) -> usize {
    let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
    // SAFETY: reads that many bytes, which the server has checked to be of its encoding.
    let characters = unsafe { pg_sys::pg_mbstrlen_with_len(text.as_ptr().cast(), length) };
    usize::try_from(characters).unwrap_or(usize::MAX)
}

/// The whole of `text`, without a NUL, in another encoding; `None` outside a transaction, too, which the catalog can only
/// be read in.
fn convert(text: &[u8], from: c_int, to: c_int) -> Option<Vec<u8>> {
    if !transaction::is_open() {
        return None;
    }
    // SAFETY: looks in the catalog, in a transaction.
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
        // SAFETY: reads at most `length` bytes, and writes at most `size` with a NUL at the end. It takes as many as
        // fit, up to the first that it cannot convert, and says how many those were.
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
