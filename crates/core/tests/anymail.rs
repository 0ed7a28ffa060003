//! Our requests beside those that django-anymail makes of the same mails, field by field.
//!
//! anymail is a program of others for the same five providers. What differs is in [`DIFFERENCES`], with both values and
//! the reason; any other difference is a failure, and so is one of these that is none any more. `tests/run` installs
//! anymail and names its Python in `MAILROOM_ANYMAIL`. How both are taken apart is in `anymail/fields.py`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails should do it at once and loudly"
)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mailroom_core::attachment::Attachment;
use mailroom_core::message::Message;
use mailroom_core::transport::config::{self, Method};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[path = "anymail/mails.rs"]
mod mails;

use mails::{File, MAILS, Mail};

const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// The providers, and what the transports file says of each besides `from`.
const PROVIDERS: [(&str, &str); 5] = [
    (
        "ses",
        "region = \"us-east-1\"\naccess_key_id = \"AKIDEXAMPLE\"\nsecret_access_key = \"hunter2\"",
    ),
    ("sendgrid", "api_key = \"hunter2\""),
    ("postmark", "api_key = \"hunter2\""),
    ("resend", "api_key = \"hunter2\""),
    ("mailgun", "api_key = \"hunter2\""),
];

/// One field of some mails of some providers, ours, theirs, and why they differ.
struct Difference {
    providers: &'static [&'static str],
    /// Their names; none for all.
    mails: &'static [&'static str],
    field: &'static str,
    /// As JSON; empty where there is none.
    ours: &'static str,
    theirs: &'static str,
    why: &'static str,
}

/// What is meant to differ.
const DIFFERENCES: [Difference; 17] = [
    Difference {
        providers: &["ses"],
        mails: &["people with names"],
        field: "bcc",
        ours: r#"[["AnnM.Lee","a.m@example.com"]]"#,
        theirs: r#"["a.m@example.com"]"#,
        why: "a destination may have the name, which only SES reads",
    },
    Difference {
        providers: &["mailgun"],
        mails: &[],
        field: "metadata.outbox_id",
        ours: "",
        theirs: r#""7""#,
        why: "each recipient reads the variables in a header, and would learn how many mails there were",
    },
    Difference {
        providers: &["ses", "sendgrid", "postmark", "resend", "mailgun"],
        mails: &["HTML alone"],
        field: "text",
        ours: r#""Dear Ada,\n\nConfirm (https://example.com/a?b=1&c=2)\n""#,
        theirs: "",
        why: "a mail with HTML alone counts as spam sooner",
    },
    Difference {
        providers: &["ses"],
        mails: &[],
        field: "headers.date",
        ours: "",
        theirs: r#""*""#,
        why: "SES writes it where it makes the message",
    },
    Difference {
        providers: &["ses"],
        mails: &[],
        field: "headers.message-id",
        ours: "",
        theirs: r#""*""#,
        why: "SES writes it, and replaces any other",
    },
    Difference {
        providers: &["ses"],
        mails: &[],
        field: "headers.x-tag",
        ours: "",
        theirs: r#""reminder""#,
        why: "the recipient is not to read it: SES has tags of a mail",
    },
    Difference {
        providers: &["ses", "resend"],
        mails: &[],
        field: "headers.x-metadata",
        ours: "",
        theirs: r#""{\"message_id\": \"0f8fad5b-d9cb-469f-a165-70867728950e\", \"outbox_id\": \"7\"}""#,
        why: "the recipient is not to read it: tags carry it to the events",
    },
    Difference {
        providers: &["ses", "resend"],
        mails: &[],
        field: "metadata.message_id",
        ours: r#""0f8fad5b-d9cb-469f-a165-70867728950e""#,
        theirs: "",
        why: "as tags, which come with the events",
    },
    Difference {
        providers: &["ses", "resend"],
        mails: &[],
        field: "metadata.outbox_id",
        ours: r#""7""#,
        theirs: "",
        why: "as tags, which come with the events",
    },
    Difference {
        providers: &["resend"],
        mails: &[],
        field: "headers.x-tags",
        ours: "",
        theirs: r#""[\"reminder\"]""#,
        why: "the recipient is not to read it: Resend has tags of a mail",
    },
    Difference {
        providers: &["resend"],
        mails: &[],
        field: "tags",
        ours: r#"["reminder"]"#,
        theirs: "",
        why: "a kind is made to fit their characters",
    },
    Difference {
        providers: &["resend"],
        mails: &[],
        field: "http.idempotency-key",
        ours: r#""0f8fad5b-d9cb-469f-a165-70867728950e-7-1790000000.123456""#,
        theirs: "",
        why: "anymail sends a mail once, we may try again",
    },
    Difference {
        providers: &["sendgrid"],
        mails: &[],
        field: "tracking.clicks.enable_text",
        ours: r#""off""#,
        theirs: "",
        why: "a link in the text is not to be rewritten either",
    },
    Difference {
        providers: &["sendgrid"],
        mails: &[],
        field: "tracking.subscription",
        ours: r#""off""#,
        theirs: "",
        why: "it is on by account, and puts a footer into a recovery mail",
    },
    Difference {
        providers: &["sendgrid"],
        mails: &["an invitation"],
        field: "files",
        ours: r#"[{"content":"QkVHSU46VkNBTEVOREFSCkVORDpWQ0FMRU5EQVIK","name":"invite.ics","type":"text/calendar"}]"#,
        theirs: r#"[{"content":"QkVHSU46VkNBTEVOREFSCkVORDpWQ0FMRU5EQVIK","name":"invite.ics","type":"text/calendar; method=REQUEST; charset=utf-8"}]"#,
        why: "SendGrid refuses a mail with a parameter in a type (django-anymail#492)",
    },
    Difference {
        providers: &["mailgun"],
        mails: &[],
        field: "tracking.all",
        ours: r#""off""#,
        theirs: "",
        why: "the switch above the two others",
    },
    Difference {
        providers: &["mailgun"],
        mails: &["a bare sender beyond ASCII"],
        field: "request",
        ours: r#""POST https://api.mailgun.net/v3/xn--bcher-kva.example/messages""#,
        theirs: r#""POST https://api.mailgun.net/v3/b%C3%BCcher.example/messages""#,
        why: "Mailgun knows its domains in ASCII",
    },
];

fn message(mail: &Mail) -> Message {
    let list = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect();
    Message {
        id: 7,
        message_id: ID.to_owned(),
        kind: "reminder".to_owned(),
        recipients: list(mail.to),
        cc: list(mail.cc),
        bcc: list(mail.bcc),
        reply_to: list(mail.reply_to),
        from_address: mail.own_from.map(str::to_owned),
        headers: (!mail.headers.is_empty()).then(|| {
            let headers = mail.headers.iter();
            let headers: serde_json::Map<String, Value> = headers
                .map(|(name, value)| (name.to_string(), Value::from(*value)))
                .collect();
            Value::from(headers).to_string()
        }),
        unsubscribe_url: mail.unsubscribe_url.map(str::to_owned),
        subject: mail.subject.to_owned(),
        body_text: mail.text.map(str::to_owned),
        body_html: mail.html.map(str::to_owned),
        attachments: mail.files.iter().map(attachment).collect(),
        data: RawValue::from_string("{}".to_owned()).unwrap(),
        attempts: 1,
        created_at: 0,
        created_at_text: "1790000000.123456".to_owned(),
        ..Message::default()
    }
}

fn attachment(file: &File) -> Attachment {
    Attachment {
        filename: file.name.to_owned(),
        content_type: file.content_type.to_owned(),
        content_id: file.id.map(str::to_owned),
        content: file.content.into(),
    }
}

/// The request that we make.
fn request(provider: &str, keys: &str, mail: &Mail) -> Value {
    let from = Value::from(mail.from);
    let file = format!("[transports.x]\nprovider = \"{provider}\"\nfrom = {from}\n{keys}\n");
    let transports = config::parse(&file, Path::new("/"));
    let transports = transports.unwrap_or_else(|error| panic!("{provider}: {error:?}"));
    let Method::Http { provider, .. } = &transports[0].method else {
        panic!("{provider} does not speak HTTP");
    };
    let request = provider.request(&[&message(mail)], UNIX_EPOCH).unwrap();
    let headers: serde_json::Map<String, Value> = request
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()))
        .collect();
    json!({
        "method": "POST",
        "url": request.uri.to_string(),
        "headers": headers,
        "body": STANDARD.encode(&request.body),
    })
}

/// The same mail for anymail.
fn for_anymail(mail: &Mail) -> Value {
    let mut headers = json!({"X-Mailroom-Message-ID": ID, "Auto-Submitted": "auto-generated"});
    if let Some(url) = mail.unsubscribe_url {
        headers["List-Unsubscribe"] = format!("<{url}>").into();
        headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click".into();
    }
    for (name, value) in mail.headers {
        headers[*name] = (*value).into();
    }
    let file = |file: &File| {
        json!({
            "name": file.name,
            "type": file.content_type,
            "id": file.id,
            "content": STANDARD.encode(file.content),
        })
    };
    json!({
        "files": mail.files.iter().map(file).collect::<Vec<_>>(),
        "from": mail.own_from.unwrap_or(mail.from),
        "to": mail.to,
        "cc": mail.cc,
        "bcc": mail.bcc,
        "reply_to": mail.reply_to,
        "subject": mail.subject,
        "text": mail.text,
        "html": mail.html,
        "tags": ["reminder"],
        "metadata": {"message_id": ID, "outbox_id": "7"},
        "headers": headers,
    })
}

/// Both in fields, for each of these.
fn compare(cases: &Value) -> Vec<Value> {
    let python = std::env::var_os("MAILROOM_ANYMAIL").unwrap_or_else(|| {
        panic!("MAILROOM_ANYMAIL is not set: run the tests with `make test`, which prepares it")
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/anymail/compare.py");
    let mut child = Command::new(python)
        .args(["-B", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(cases.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "compare.py failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A field as in [`Difference`].
fn shown(fields: &Value, field: &str) -> String {
    fields.get(field).map_or_else(String::new, Value::to_string)
}

#[test]
fn requests_are_those_of_anymail_but_for_what_is_meant_to_differ() {
    let mut places = Vec::new();
    let mut cases = Vec::new();
    for (provider, keys) in PROVIDERS {
        for mail in &MAILS {
            places.push((provider, mail.name));
            cases.push(json!({
                "provider": provider,
                "mail": for_anymail(mail),
                "request": request(provider, keys, mail),
            }));
        }
    }
    let answers = compare(&Value::from(cases));
    assert_eq!(answers.len(), places.len());

    let mut unused: BTreeSet<usize> = (0..DIFFERENCES.len()).collect();
    let mut failures = Vec::new();
    for ((provider, mail), answer) in places.into_iter().zip(&answers) {
        let (ours, theirs) = (&answer["ours"], &answer["theirs"]);
        let sides = [ours, theirs].map(|side| side.as_object().unwrap());
        let names: BTreeSet<&String> = sides.iter().flat_map(|side| side.keys()).collect();
        assert!(names.len() >= 10, "{provider} {mail}: {names:?}");
        for field in names {
            let (our, their) = (shown(ours, field), shown(theirs, field));
            let meant = DIFFERENCES.iter().position(|one| {
                one.providers.contains(&provider)
                    && one.field == field
                    && (one.mails.is_empty() || one.mails.contains(&mail))
            });
            let is_as_meant = match meant.map(|place| (place, &DIFFERENCES[place])) {
                None => our == their,
                Some((place, one)) => {
                    unused.remove(&place);
                    assert!(!one.why.is_empty() && one.ours != one.theirs);
                    (our.as_str(), their.as_str()) == (one.ours, one.theirs)
                }
            };
            if !is_as_meant {
                failures.push(format!(
                    "{provider}, {mail}, {field}: ours {our}, theirs {their}"
                ));
            }
        }
    }
    for place in unused {
        let one = &DIFFERENCES[place];
        failures.push(format!("{}: it is listed, and does not differ", one.field));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
