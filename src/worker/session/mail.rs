//! Reads claimed mail from SPI rows.

use std::collections::HashMap;

use pgrx::prelude::*;
use pgrx::spi::{SpiHeapTupleData, SpiTupleTable};

use super::Failure;
use crate::pg::encoding::{Text, Texts};
use mailroom_core::row::{ReadError, Row};

/// The numbers of the columns, from 1, by name. Determined once for all rows of a batch.
pub struct Columns(HashMap<String, usize>);

impl Columns {
    pub fn of(rows: &SpiTupleTable<'_>) -> Result<Self, Failure> {
        let name = |ordinal| Ok((rows.column_name(ordinal)?, ordinal));
        (1..=rows.columns()?)
            .map(name)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A row of `claim_mail.sql` or `attachments.sql`.
pub struct ClaimedRow<'a> {
    pub row: SpiHeapTupleData<'a>,
    pub columns: &'a Columns,
}

impl ClaimedRow<'_> {
    fn get<T: FromDatum + IntoDatum>(&self, column: &str) -> Result<Option<T>, Failure> {
        // There is no column 0, so a missing name raises the error of a missing column.
        let ordinal = self.columns.0.get(column).copied().unwrap_or(0);
        Ok(self.row.get(ordinal)?)
    }
}

impl Row for ClaimedRow<'_> {
    type Error = Failure;

    fn unexpected_null(column: &str) -> Failure {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &format!("column {column} of a claimed mail is null"),
            None,
        )
    }

    fn boolean(&self, column: &'static str) -> Result<Option<bool>, Failure> {
        self.get(column)
    }

    fn integer(&self, column: &'static str) -> Result<Option<i32>, Failure> {
        self.get(column)
    }

    fn bigint(&self, column: &'static str) -> Result<Option<i64>, Failure> {
        self.get(column)
    }

    fn double(&self, column: &'static str) -> Result<Option<f64>, Failure> {
        self.get(column)
    }

    fn text(&self, column: &'static str) -> Result<Option<String>, ReadError<Failure>> {
        let text: Option<Text> = self.get(column).map_err(ReadError::Row)?;
        text.map(|text| text.0.ok_or(ReadError::NotText(column)))
            .transpose()
    }

    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, Failure> {
        self.get(column)
    }

    fn texts(&self, column: &'static str) -> Result<Option<Vec<String>>, ReadError<Failure>> {
        let texts: Option<Texts> = self.get(column).map_err(ReadError::Row)?;
        texts
            .map(|texts| texts.0.ok_or(ReadError::NotText(column)))
            .transpose()
    }
}
