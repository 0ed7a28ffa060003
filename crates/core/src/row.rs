//! Reading a claimed mail from a row of `claim_mail.sql`: each field from the column of its name. Pure.
//!
//! The worker reads rows of SPI, `mailroom send` those of its connection; each implements [`Row`].

use serde_json::value::RawValue;

/// Why a mail cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError<E> {
    /// The column holds bytes that are no characters in the database's encoding. The mail ends.
    NotText(&'static str),
    /// The column does not exist, has another type, or is null and must not be.
    Row(E),
}

/// A row. A method returns `None` for a null.
pub trait Row {
    /// The error for a column that is missing, has another type, or is null and must not be.
    type Error;

    /// The error for a null where there must be none.
    fn unexpected_null(column: &str) -> Self::Error;

    /// A column of type boolean.
    ///
    /// # Errors
    /// As [`Row::Error`]; the same for all methods.
    fn boolean(&self, column: &'static str) -> Result<Option<bool>, Self::Error>;

    /// A column of type integer.
    ///
    /// # Errors
    /// As [`Row::boolean`].
    fn integer(&self, column: &'static str) -> Result<Option<i32>, Self::Error>;

    /// A column of type bigint.
    ///
    /// # Errors
    /// As [`Row::boolean`].
    fn bigint(&self, column: &'static str) -> Result<Option<i64>, Self::Error>;

    /// A column of type double precision.
    ///
    /// # Errors
    /// As [`Row::boolean`].
    fn double(&self, column: &'static str) -> Result<Option<f64>, Self::Error>;

    /// A column of type text.
    ///
    /// # Errors
    /// As [`ReadError`].
    fn text(&self, column: &'static str) -> Result<Option<String>, ReadError<Self::Error>>;

    /// A column of type bytea.
    ///
    /// # Errors
    /// As [`Row::boolean`].
    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, Self::Error>;

    /// A column of type text[], without nulls.
    ///
    /// # Errors
    /// As [`ReadError`].
    fn texts(&self, column: &'static str) -> Result<Option<Vec<String>>, ReadError<Self::Error>>;
}

/// A type that can be read from a column.
pub trait Column: Sized {
    /// The value of the column.
    ///
    /// # Errors
    /// As [`ReadError`].
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>>;
}

fn required<R: Row, T>(value: Option<T>, column: &str) -> Result<T, ReadError<R::Error>> {
    value.ok_or_else(|| ReadError::Row(R::unexpected_null(column)))
}

impl Column for bool {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        required::<R, _>(row.boolean(column).map_err(ReadError::Row)?, column)
    }
}

impl Column for i32 {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        required::<R, _>(row.integer(column).map_err(ReadError::Row)?, column)
    }
}

impl Column for i64 {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        required::<R, _>(row.bigint(column).map_err(ReadError::Row)?, column)
    }
}

impl Column for Option<i64> {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        row.bigint(column).map_err(ReadError::Row)
    }
}

impl Column for Option<f64> {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        row.double(column).map_err(ReadError::Row)
    }
}

impl Column for String {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        required::<R, _>(row.text(column)?, column)
    }
}

impl Column for Option<String> {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        row.text(column)
    }
}

impl Column for Vec<String> {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        required::<R, _>(row.texts(column)?, column)
    }
}

/// Text of jsonb, as it goes on to the provider.
impl Column for Box<RawValue> {
    fn read<R: Row>(row: &R, column: &'static str) -> Result<Self, ReadError<R::Error>> {
        let text = String::read(row, column)?;
        RawValue::from_string(text).map_err(|_| ReadError::NotText(column))
    }
}

/// Declares a struct and `read`, which reads the fields of the first block from the columns of their names. Those of
/// the second block are left at their defaults.
macro_rules! read_by_name {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$doc:meta])* pub $column:ident: $type:ty,)*
        }
        with {
            $($(#[$other_doc:meta])* pub $other:ident: $other_type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$doc])* pub $column: $type,)*
            $($(#[$other_doc])* pub $other: $other_type,)*
        }

        impl $name {
            /// Reads it from a row.
            ///
            /// # Errors
            /// As [`ReadError`](crate::row::ReadError).
            pub fn read<R: crate::row::Row>(row: &R) -> Result<Self, crate::row::ReadError<R::Error>> {
                Ok(Self {
                    $($column: <$type as crate::row::Column>::read(row, stringify!($column))?,)*
                    $($other: Default::default(),)*
                })
            }
        }
    };
}
pub(crate) use read_by_name;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::mail::Mail;
    use crate::message::Message;

    /// A row of which the named column is null, or no text.
    struct Fake {
        null: &'static str,
        not_text: &'static str,
    }

    impl Row for Fake {
        type Error = String;

        fn unexpected_null(column: &str) -> String {
            format!("{column} is null")
        }

        fn boolean(&self, column: &'static str) -> Result<Option<bool>, String> {
            Ok((column != self.null).then_some(true))
        }

        fn integer(&self, column: &'static str) -> Result<Option<i32>, String> {
            Ok((column != self.null).then_some(7))
        }

        fn bigint(&self, column: &'static str) -> Result<Option<i64>, String> {
            Ok((column != self.null).then_some(8))
        }

        fn double(&self, column: &'static str) -> Result<Option<f64>, String> {
            Ok((column != self.null).then_some(1.5))
        }

        fn text(&self, column: &'static str) -> Result<Option<String>, ReadError<String>> {
            if column == self.not_text {
                return Err(ReadError::NotText(column));
            }
            let text = match column {
                "data" => "{}".to_owned(),
                _ => format!("the {column}"),
            };
            Ok((column != self.null).then_some(text))
        }

        fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, String> {
            Err(format!("there is no column {column}"))
        }

        fn texts(&self, column: &'static str) -> Result<Option<Vec<String>>, ReadError<String>> {
            Ok(self.text(column)?.map(|text| vec![text]))
        }
    }

    fn read(null: &'static str, not_text: &'static str) -> Result<Mail, ReadError<String>> {
        Mail::read(&Fake { null, not_text }, 100)
    }

    #[test]
    fn each_field_is_read_from_the_column_of_its_name() {
        let mail = read("mailroom.redirect_to", "").unwrap();
        let Message { cc, subject, .. } = &mail.message;
        assert_eq!(
            (cc[0].as_str(), subject.as_str()),
            ("the cc", "the subject")
        );
        assert_eq!(mail.message.original_recipients, Vec::<String>::new());
        assert_eq!((mail.message.id, mail.priority), (8, 7));
        let redirected = read("", "").unwrap().message;
        assert_eq!(redirected.recipients, ["the mailroom.redirect_to"]);
        assert_eq!(redirected.original_recipients.len(), 3);
    }

    #[test]
    fn an_error_names_the_column() {
        let error = read("", "bcc").unwrap_err();
        assert_eq!(error, ReadError::NotText("bcc"));
        let error = read("bcc", "").unwrap_err();
        assert_eq!(error, ReadError::Row("bcc is null".to_owned()));
        assert!(read("body_html", "").unwrap().message.body_html.is_none());
    }
}
