//! The templates that come with the library. They are no rows, so that a dump holds what people wrote.
//!
//! The HTML bodies share their frame; what is theirs stands between its halves.

/// A template that comes with the library.
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

/// The locale of the templates that come with the library.
pub const BUILTIN_LOCALE: &str = "en";

/// An HTML body: the frame around what a file holds. A macro, because only literals can be joined by the compiler.
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

/// The templates that come with the library.
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
