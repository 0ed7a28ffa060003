//! Mail that arrived at an SMTP server, as third-party parsers read it, and whether it equals what was scheduled.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use mailroom_core::address::mailbox::Mailbox;
use postgres::Client;
use serde::Deserialize;

/// The sender of the transports, as in the transports file.
const FROM: &str = "\\\"Bücher, Ltd.\\\" <shop@bücher.example>";
/// The same sender, as a parser reads it.
const SENDER: (&str, &str) = ("Bücher, Ltd.", "shop@xn--bcher-kva.example");

/// One copy of a mail.
#[derive(Debug, Deserialize)]
pub struct Arrived {
    /// The recipients in the envelope.
    pub delivered_to: Vec<String>,
    /// The server's own `Received` header.
    pub received: Option<String>,
    pub message_id: String,
    /// `message_id` of the outbox.
    pub id: String,
    /// Names and addresses.
    pub from: Vec<(String, String)>,
    pub to: Vec<(String, String)>,
    pub cc: Vec<(String, String)>,
    pub bcc: Vec<(String, String)>,
    pub reply_to: Vec<(String, String)>,
    pub subject: String,
    pub text: Option<String>,
    pub html: Option<String>,
    pub auto_submitted: String,
    /// A header of the mail's own, empty if there is none; `None` of a parser that does not decode it.
    pub x_order: Option<String>,
    pub list_unsubscribe: Option<String>,
    /// Images of the HTML first.
    pub files: Vec<File>,
    /// Types of the parts; `None` of a parser that does not tell.
    pub tree: Option<String>,
    /// The defects that the parser found.
    pub defects: Vec<String>,
}

/// A file of a mail.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct File {
    pub filename: String,
    /// The name in Content-Type; `None` of a parser that does not show it.
    pub name: Option<String>,
    /// Without parameters.
    pub content_type: String,
    pub content_id: Option<String>,
    /// In hexadecimal digits.
    pub content: String,
}

/// A mail of the outbox.
#[derive(Debug)]
pub struct Scheduled {
    pub id: String,
    pub recipients: Vec<String>,
    pub cc: Vec<String>,
    pub bcc: Vec<String>,
    pub reply_to: Vec<String>,
    pub subject: String,
    pub text: Option<String>,
    pub html: Option<String>,
    pub provider_id: Option<String>,
    pub from_address: Option<String>,
    pub x_order: Option<String>,
    pub unsubscribe_url: Option<String>,
    pub files: Vec<File>,
}

/// The table of an SMTP transport.
pub fn transport(name: &str, port: u16, more: &str) -> String {
    let host = if more.contains("host = ") {
        ""
    } else {
        "host = \"localhost\"\n"
    };
    format!(
        "[transports.{name}]\nprovider = \"smtp\"\n{host}port = {port}\nfrom = \"{FROM}\"\n\
         allowed_networks = [\"127.0.0.0/8\"]\n{more}\n"
    )
}

/// The mails in the files of a directory, as Python's `email` reads them.
pub fn read(directory: &Path) -> Vec<Arrived> {
    parse(
        super::program("python")
            .args(["-B", script("read_mail.py")])
            .arg(directory),
    )
}

/// As [`read`], by npm's mailparser.
pub fn read_with_mailparser(directory: &Path) -> Vec<Arrived> {
    let module = super::module("mailparser/dist/cjs/index.js");
    parse(
        super::node()
            .arg(script("read_mail.mjs"))
            .arg(module)
            .arg(directory),
    )
}

fn script(name: &str) -> &'static str {
    match name {
        "read_mail.py" => concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/counterparts/read_mail.py"
        ),
        _ => concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/counterparts/read_mail.mjs"
        ),
    }
}

fn parse(reader: &mut Command) -> Vec<Arrived> {
    let Output {
        status,
        stdout,
        stderr,
    } = reader.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

/// The mails of the outbox that meet this condition.
pub fn scheduled(client: &mut Client, which: &str) -> Vec<Scheduled> {
    let query = format!(
        "SELECT message_id::text, recipients::text[], cc::text[], bcc::text[], subject::text, body_text::text, body_html::text, provider_id, reply_to::text[], \
         from_address::text, headers ->> 'X-Order', unsubscribe_url, \
         (SELECT coalesce(json_agg(json_build_object('filename', filename, 'content_type', split_part(content_type, ';', 1), \
                 'content_id', content_id, 'content', encode(content, 'hex')) ORDER BY position), '[]')::text \
             FROM mailroom_attachments(outbox.id)) \
         FROM outbox WHERE {which} ORDER BY id"
    );
    let rows = client.query(&query, &[]).unwrap();
    rows.iter()
        .map(|row| Scheduled {
            id: row.get(0),
            recipients: row.get(1),
            cc: row.get(2),
            bcc: row.get(3),
            subject: row.get(4),
            text: row.get(5),
            html: row.get(6),
            provider_id: row.get(7),
            reply_to: row.get(8),
            from_address: row.get(9),
            x_order: row.get(10),
            unsubscribe_url: row.get(11),
            files: serde_json::from_str(row.get(12)).unwrap(),
        })
        .collect()
}

impl Scheduled {
    /// Fails unless these are copies of this mail, one for each recipient except those that the server refused.
    pub fn must_be(&self, copies: &[&Arrived], refused: &[&str]) {
        let lists = [&self.recipients, &self.cc, &self.bcc];
        let expected: BTreeSet<String> = lists
            .into_iter()
            .flatten()
            .map(|one| person(one).1)
            .collect();
        let expected: BTreeSet<&str> = expected
            .iter()
            .map(String::as_str)
            .filter(|one| !refused.contains(one))
            .collect();
        let delivered: Vec<&str> = copies
            .iter()
            .flat_map(|copy| &copy.delivered_to)
            .map(String::as_str)
            .collect();
        assert_eq!(delivered.len(), expected.len(), "{self:?}: {delivered:?}");
        assert_eq!(
            delivered.iter().copied().collect::<BTreeSet<_>>(),
            expected,
            "{self:?}"
        );
        for copy in copies {
            self.must_equal(copy);
        }
        let mut received = copies.iter().filter_map(|copy| copy.received.as_ref());
        if let (Some(first), Some(id)) = (received.clone().next(), &self.provider_id) {
            // Of a mail in several transactions it is the queue id of the first.
            let is_known = received.any(|received| received.contains(id));
            assert!(is_known, "{first} is not of {id}");
        }
    }

    /// Fails unless this copy has the content of the mail.
    pub fn must_equal(&self, copy: &Arrived) {
        // A parser may show domains in Unicode.
        let shown = |list: &[(String, String)]| -> Vec<(String, String)> {
            list.iter()
                .map(|(name, address)| (name.clone(), in_ascii(address)))
                .collect()
        };
        let own = self.from_address.as_deref().map(person);
        let sender = vec![own.unwrap_or((SENDER.0.to_owned(), SENDER.1.to_owned()))];
        assert_eq!(shown(&copy.from), sender);
        let bare = |list: &[String]| -> Vec<(String, String)> {
            list.iter().map(|one| person(one)).collect()
        };
        assert_eq!(shown(&copy.to), bare(&self.recipients), "{self:?}");
        assert_eq!(shown(&copy.cc), bare(&self.cc), "{self:?}");
        assert_eq!(copy.bcc, [], "{self:?}");
        assert_eq!(shown(&copy.reply_to), bare(&self.reply_to), "{self:?}");
        assert_eq!(copy.subject, self.subject);
        let domain = SENDER.1.split('@').nth(1).unwrap();
        assert_eq!(copy.message_id, format!("<{}@{domain}>", self.id));
        assert_eq!(copy.auto_submitted, "auto-generated");
        if let Some(shown) = &copy.x_order {
            assert_eq!(
                shown,
                self.x_order.as_deref().unwrap_or_default(),
                "{self:?}"
            );
        }
        if let Some(shown) = &copy.list_unsubscribe {
            let url = self.unsubscribe_url.as_ref();
            assert_eq!(
                *shown,
                url.map_or_else(String::new, |url| format!("<{url}>"))
            );
        }
        assert_eq!(copy.defects, [] as [String; 0], "{self:?}");
        self.must_have_files(copy);
        if let Some(text) = &self.text {
            assert_eq!(
                lines(copy.text.as_deref().unwrap_or_default()),
                lines(text),
                "{self:?}"
            );
        }
        match &self.html {
            Some(html) => assert_eq!(
                lines(copy.html.as_deref().unwrap_or_default()),
                lines(html),
                "{self:?}"
            ),
            None => assert_eq!(copy.html, None, "{self:?}"),
        }
    }
}

impl Scheduled {
    /// Fails unless this copy has the files of the mail, where mail programs look for them.
    fn must_have_files(&self, copy: &Arrived) {
        let is_shown = |file: &&File| self.html.is_some() && file.content_id.is_some();
        let (shown, others): (Vec<_>, Vec<_>) = self.files.iter().partition(is_shown);
        let expected: Vec<&File> = shown.iter().chain(&others).copied().collect();
        assert_eq!(copy.files.len(), expected.len(), "{self:?}: {copy:?}");
        for (file, expected) in copy.files.iter().zip(expected) {
            let name = file.name.as_ref().unwrap_or(&file.filename);
            assert_eq!(*name, expected.filename, "{self:?}");
            let without_name = File {
                name: None,
                ..file.clone()
            };
            assert_eq!(without_name, *expected, "{self:?}");
        }
        if let Some(tree) = &copy.tree {
            let parts = |files: &[&File]| -> String {
                let part = |file: &&File| format!("({})", file.content_type);
                files.iter().map(part).collect()
            };
            let with = |kind: &str, first: String, files: &[&File]| match files {
                [] => first,
                files => format!("multipart/{kind}({first}){}", parts(files)),
            };
            let body = match &self.html {
                None => "text/plain".to_owned(),
                Some(_) => {
                    let html = with("related", "text/html".to_owned(), &shown);
                    format!("multipart/alternative(text/plain)({html})")
                }
            };
            assert_eq!(*tree, with("mixed", body, &others), "{self:?}");
        }
    }
}

/// An address as it is in mail: with its domain in ASCII.
/// Name and address of a mailbox.
fn person(text: &str) -> (String, String) {
    let mailbox = Mailbox::parse(text).unwrap();
    (
        mailbox.name().unwrap_or_default().to_owned(),
        mailbox.address().to_owned(),
    )
}

fn in_ascii(address: &str) -> String {
    address
        .replace("@bücher.example", "@xn--bcher-kva.example")
        .replace("@例え.example", "@xn--r8jz45g.example")
}

/// A text without the differences that mail causes: the kind of line ends, and whether the last line has one.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.strip_suffix('\n')
        .map_or_else(|| text.clone(), str::to_owned)
}
