//! A construct that a template may not use, with its place in the source.

use minijinja::machinery::Span;

/// Something that a template may not say.
pub struct Refusal {
    /// Where it stands.
    pub span: Span,
    /// What is wrong with it.
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
