//! The built-in templates. They are not rows, so that a dump contains only templates that users wrote.
//!
//! The HTML bodies share a header and a footer.

/// A built-in template.
pub struct Builtin {
    /// The kind of mail.
    pub kind: &'static str,
    /// The source of the subject.
    pub subject: &'static str,
    /// The source of the text body.
    pub body_text: &'static str,
    /// The source of the HTML body.
    pub body_html: &'static str,
}

/// The locale of the built-in templates.
pub const BUILTIN_LOCALE: &str = "en";

/// An HTML body: the header, the contents of a file, the footer. A macro, because the compiler concatenates literals
/// only.
macro_rules! framed {
    ($title:literal, $file:literal) => {
        concat!(
            "{% set title = '",
            $title,
            "' -%}\n",
            include_str!("shipped/head.html"),
            include_str!($file),
            include_str!("shipped/foot.html"),
        )
    };
}

/// The built-in templates.
pub const BUILTIN: [Builtin; 3] = [
    Builtin {
        kind: "activation",
        subject: "Activate your account",
        body_text: include_str!("shipped/activation.txt"),
        body_html: framed!("Activate your account", "shipped/activation.html"),
    },
    Builtin {
        kind: "password_recovery",
        subject: "Reset your password",
        body_text: include_str!("shipped/password_recovery.txt"),
        body_html: framed!("Reset your password", "shipped/password_recovery.html"),
    },
    Builtin {
        kind: "password_changed",
        subject: "Your password was changed",
        body_text: include_str!("shipped/password_changed.txt"),
        body_html: framed!("Your password was changed", "shipped/password_changed.html"),
    },
];
