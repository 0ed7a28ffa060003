//! The mails of which requests are compared.

/// What a mail says.
pub struct Mail {
    pub name: &'static str,
    pub from: &'static str,
    pub to: &'static [&'static str],
    pub cc: &'static [&'static str],
    pub bcc: &'static [&'static str],
    pub reply_to: &'static [&'static str],
    /// A sender of its own.
    pub own_from: Option<&'static str>,
    /// Headers of its own.
    pub headers: &'static [(&'static str, &'static str)],
    pub unsubscribe_url: Option<&'static str>,
    pub subject: &'static str,
    pub text: Option<&'static str>,
    pub html: Option<&'static str>,
    pub files: &'static [File],
}

/// A file of a mail.
pub struct File {
    pub name: &'static str,
    pub content_type: &'static str,
    pub id: Option<&'static str>,
    pub content: &'static [u8],
}

const PDF: File = File {
    name: "invoice.pdf",
    content_type: "application/pdf",
    id: None,
    content: b"%PDF-1.7\r\n\0\xff\n",
};

const PLAIN: Mail = Mail {
    name: "text",
    from: "Example <noreply@example.com>",
    to: &["ada@example.com"],
    cc: &[],
    bcc: &[],
    reply_to: &[],
    own_from: None,
    headers: &[],
    unsubscribe_url: None,
    subject: "Hello",
    text: Some("Dear Ada,\n\nsee {{you}} & <us>\n"),
    html: None,
    files: &[],
};

/// The mails.
pub const MAILS: [Mail; 18] = [
    PLAIN,
    Mail {
        name: "text and HTML",
        html: Some("<p>Dear Ada,</p><p>see {{you}} &amp; us</p>\n"),
        ..PLAIN
    },
    Mail {
        name: "copies",
        cc: &["grace@example.com", "kate@example.com"],
        bcc: &["alan@example.com", "john@example.com"],
        ..PLAIN
    },
    Mail {
        name: "answers to another address",
        reply_to: &["help@example.net"],
        ..PLAIN
    },
    Mail {
        name: "answers to several addresses",
        reply_to: &["help@example.net", "o'hara+tag@bücher.example"],
        ..PLAIN
    },
    Mail {
        name: "a sender of its own",
        own_from: Some("\"Orders, \\\"Ltd.\\\"\" <orders@example.com>"),
        ..PLAIN
    },
    Mail {
        name: "headers of its own, and one click to unsubscribe",
        headers: &[
            ("X-Campaign", "spring"),
            ("References", "<first@example.com>"),
            ("List-Id", "<news.example.com>"),
            ("Auto-Submitted", "no"),
        ],
        unsubscribe_url: Some("https://example.com/unsubscribe?token=a%20b"),
        ..PLAIN
    },
    Mail {
        name: "people with names",
        to: &[
            "Ann Lee <ann@example.com>",
            "\"Lee, \\\"Bob\\\"\" <bob@example.com>",
            "Zoë Müller <zoe@example.com>",
        ],
        cc: &[
            "\"Büro, das \\\"große\\\" an der langen und sehr breiten Straße\" <office@example.com>",
        ],
        bcc: &["Ann M. Lee <a.m@example.com>"],
        reply_to: &["Hilfe für alle <help@example.net>"],
        ..PLAIN
    },
    Mail {
        name: "several recipients",
        to: &[
            "ada@example.com",
            "o'hara+tag@example.org",
            "bob@example.net",
        ],
        ..PLAIN
    },
    Mail {
        name: "beyond ASCII",
        from: "Bücher & Café 📚 <noreply@example.com>",
        subject: "Grüße an alle, 你好 📬",
        text: Some("Liebe Ada,\nGrüße 📬\n"),
        ..PLAIN
    },
    Mail {
        name: "a name to be quoted",
        from: r#""Example, \"Ltd.\"" <noreply@example.com>"#,
        ..PLAIN
    },
    Mail {
        name: "a bare sender beyond ASCII",
        from: "noreply@bücher.example",
        ..PLAIN
    },
    Mail {
        name: "recipients beyond ASCII",
        to: &["ada@bücher.example", "bob@STRASSE.example"],
        cc: &["grace@straße.example"],
        bcc: &["kate@παράδειγμα.example"],
        ..PLAIN
    },
    Mail {
        name: "HTML alone",
        text: None,
        html: Some(
            "<p>Dear Ada,</p><p><a href=\"https://example.com/a?b=1&amp;c=2\">Confirm</a></p>\n",
        ),
        ..PLAIN
    },
    Mail {
        name: "a file",
        files: &[PDF],
        ..PLAIN
    },
    Mail {
        name: "files, and an image that the HTML shows",
        html: Some("<p>Dear Ada, <img src=\"cid:logo@example.com\"></p>\n"),
        files: &[
            PDF,
            File {
                name: "logo.png",
                content_type: "image/png",
                id: Some("logo@example.com"),
                content: b"\x89PNG\r\n\x1a\n",
            },
            File {
                name: "terms.zip",
                content_type: "application/zip",
                id: None,
                content: b"PK\x05\x06",
            },
        ],
        ..PLAIN
    },
    Mail {
        name: "a file with a name beyond ASCII",
        files: &[File {
            name: "Rechnung für Zoë Müller, 你好 📎.pdf",
            ..PDF
        }],
        ..PLAIN
    },
    Mail {
        name: "an invitation",
        files: &[File {
            name: "invite.ics",
            content_type: "text/calendar; method=REQUEST; charset=utf-8",
            id: None,
            content: b"BEGIN:VCALENDAR\nEND:VCALENDAR\n",
        }],
        ..PLAIN
    },
];
