//! Reading rows.
//!
//! A column is read by its name, as what a page shows: text, a number, a flag. Of a database without an encoding, bytes that
//! are not UTF-8 are shown as replacement characters.

use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::connection::Failure;

/// The columns of a row.
pub struct Cells(Row);

impl From<Row> for Cells {
    fn from(row: Row) -> Self {
        Self(row)
    }
}

impl Cells {
    fn get<'a, T: FromSql<'a>>(&'a self, name: &str) -> Result<Option<T>, Failure> {
        Ok(self.0.try_get(name)?)
    }

    /// Text; empty for NULL.
    pub fn text(&self, name: &str) -> Result<String, Failure> {
        Ok(self.maybe(name)?.unwrap_or_default())
    }

    /// Text, if it is not NULL.
    pub fn maybe(&self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.get::<Readable>(name)?.map(|text| text.0))
    }

    /// Texts; none for NULL.
    pub fn list(&self, name: &str) -> Result<Vec<String>, Failure> {
        let all = self.get::<Vec<Option<Readable>>>(name)?.unwrap_or_default();
        Ok(all.into_iter().flatten().map(|text| text.0).collect())
    }

    /// A number; 0 for NULL.
    pub fn number(&self, name: &str) -> Result<i64, Failure> {
        Ok(self.maybe_number(name)?.unwrap_or_default())
    }

    /// A number, if it is not NULL.
    pub fn maybe_number(&self, name: &str) -> Result<Option<i64>, Failure> {
        Ok(self.get::<Whole>(name)?.map(|number| number.0))
    }

    /// Seconds, if they are not NULL.
    pub fn seconds(&self, name: &str) -> Result<Option<f64>, Failure> {
        self.get(name)
    }

    /// A flag; false for NULL.
    pub fn flag(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.get(name)?.unwrap_or_default())
    }
}

struct Readable(String);

impl<'a> FromSql<'a> for Readable {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(kind: &Type) -> bool {
        <&str as FromSql>::accepts(kind)
    }
}

struct Whole(i64);

impl<'a> FromSql<'a> for Whole {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT2 | Type::INT4 | Type::INT8)
    }
}
