//! The values of queries and forms. Pure.

use std::collections::BTreeMap;

/// Values by their names; of several of a name, the last.
#[derive(Clone, Debug, Default)]
pub struct Form(BTreeMap<String, String>);

impl Form {
    /// Parses `a=b&c=d`.
    pub fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text);
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// A value without white space around it; `None` if it is empty or missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.trim();
        // No text of PostgreSQL has this character.
        (!value.is_empty() && !value.contains('\0')).then_some(value)
    }

    /// A value as it is.
    pub fn raw(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }
}

/// A query of these pairs, with its question mark, without those that are empty.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        text if text.is_empty() => text,
        text => format!("?{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_as_they_were_sent() {
        let form = Form::parse(b"q=+ann%40example.com+&n=12&empty=&zero=%00&q2=a%26b");
        assert_eq!(form.get("q"), Some("ann@example.com"));
        assert_eq!(form.number("n"), Some(12));
        assert_eq!(form.get("empty"), None);
        assert_eq!(form.get("zero"), None);
        assert_eq!(form.raw("q2"), "a&b");
        assert_eq!(form.number("q"), None);
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(query(&[("q", "a&b c"), ("x", "")]), "?q=a%26b+c");
        assert_eq!(query(&[("x", "")]), "");
    }
}
