//! Reading the payloads of providers: leniently, because they are not specified, and within bounds. Pure.
//!
//! A field of another type than expected is as one that is missing: it must not cost the event. Nested objects stay text
//! until they are needed, so the memory that a payload takes is at most a few times its size, and the time is linear.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum number of elements of a list. SendGrid collects events for 30 s or until they have 768 kB.
pub(super) const ELEMENTS_MAX: usize = 10_000;

/// Text: a string, or a number or boolean as text. Of a list it is the first element; of `null`, an object and an empty
/// list, nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scalar(Option<String>);

impl Scalar {
    /// The text, unless it is missing or empty.
    pub(super) fn text(&self) -> Option<&str> {
        self.0.as_deref().filter(|text| !text.is_empty())
    }

    /// The text, which is empty if it is missing.
    pub(super) fn or_empty(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// The same by value.
    pub(super) fn into_text(self) -> Option<String> {
        self.0.filter(|text| !text.is_empty())
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(Some(value.to_string())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(Some(value.to_string())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(Some(value.to_string())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(Some(value.to_string())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar(Some(value.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        let first = list.next_element()?.unwrap_or_default();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Scalar, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::default())
    }
}

/// A list of at most [`ELEMENTS_MAX`] elements; a longer one is an error.
#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a list of at most {ELEMENTS_MAX} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == ELEMENTS_MAX {
                        return Err(Error::invalid_length(ELEMENTS_MAX + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(List(elements))
            }
        }
        deserializer.deserialize_seq(ListVisitor(std::marker::PhantomData))
    }
}

/// A nested value; the default if it is missing or of another shape.
pub(super) fn nested<'a, T: Default + Deserialize<'a>>(value: Option<&'a RawValue>) -> T {
    value
        .and_then(|value| serde_json::from_str(value.get()).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(json: &str) -> Option<String> {
        serde_json::from_str::<Scalar>(json).unwrap().into_text()
    }

    #[test]
    fn a_scalar_is_text_of_any_simple_value_or_of_the_first_in_a_list() {
        for (json, text) in [
            ("\"a\\u0000b\"", Some("a\0b")),
            ("7", Some("7")),
            ("-7", Some("-7")),
            ("1534109600.089676", Some("1534109600.089676")),
            ("true", Some("true")),
            ("[\"7\", {}]", Some("7")),
            ("[[8]]", Some("8")),
            ("\"\"", None),
            ("null", None),
            ("[]", None),
            ("{\"a\": [1]}", None),
        ] {
            assert_eq!(scalar(json).as_deref(), text, "{json}");
        }
        assert!(serde_json::from_str::<Scalar>(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn a_list_is_bounded() {
        let of = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        let read = |json: &str| serde_json::from_str::<List<IgnoredAny>>(json);
        assert_eq!(read(&of(ELEMENTS_MAX)).unwrap().0.len(), ELEMENTS_MAX);
        assert!(read(&of(ELEMENTS_MAX + 1)).is_err());
        assert!(read("{}").is_err());
    }
}
