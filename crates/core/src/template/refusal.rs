//! A construct that a template may not use, with its place in the source.

use minijinja::machinery::Span;

/// A refused construct.
pub struct Refusal {
    /// Its place in the source.
    pub span: Span,
    /// Why it is refused.
    pub what: String,
}

impl Refusal {
    /// A refusal of the construct at this place.
    pub fn new(span: Span, what: impl Into<String>) -> Self {
        Self {
            span,
            what: what.into(),
        }
    }
}
