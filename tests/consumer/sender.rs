use std::error::Error;
use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::message::{Attachment, MultiPart, SinglePart};
use lettre::{Message, SmtpTransport, Transport};
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, NoTls, Row};

fn send(smtp: &SmtpTransport, mail: &Row, files: &[Row]) -> Result<(), Box<dyn Error>> {
    let from: Option<&str> = mail.get("from_address");
    let mut message = Message::builder()
        .from(from.unwrap_or("Example <noreply@example.com>").parse()?)
        .subject(mail.get::<_, String>("subject"))
        .message_id(Some(mail.get("message_id")));
    for to in mail.get::<_, Vec<String>>("recipients") {
        message = message.to(to.parse()?);
    }
    for cc in mail.get::<_, Vec<String>>("cc") {
        message = message.cc(cc.parse()?);
    }
    for bcc in mail.get::<_, Vec<String>>("bcc") {
        message = message.bcc(bcc.parse()?);
    }
    for reply_to in mail.get::<_, Vec<String>>("reply_to") {
        message = message.reply_to(reply_to.parse()?);
    }
    let text: Option<String> = mail.get("body_text");
    let html: Option<String> = mail.get("body_html");
    let mut bodies = MultiPart::alternative().build();
    if let Some(text) = text {
        bodies = bodies.singlepart(SinglePart::plain(text));
    }
    let mut shown = html.map(|html| MultiPart::related().singlepart(SinglePart::html(html)));
    let mut attachments = Vec::new();
    for file in files {
        let kind = ContentType::parse(file.get("content_type"))?;
        let content: Vec<u8> = file.get("content");
        let id: Option<String> = file.get("content_id");
        shown = match (shown, id) {
            (Some(html), Some(id)) => {
                Some(html.singlepart(Attachment::new_inline(id).body(content, kind)))
            }
            (html, _) => {
                attachments.push(Attachment::new(file.get("filename")).body(content, kind));
                html
            }
        };
    }
    if let Some(html) = shown {
        bodies = bodies.multipart(html);
    }
    let mixed = MultiPart::mixed().multipart(bodies);
    let parts = attachments.into_iter().fold(mixed, MultiPart::singlepart);
    smtp.send(&message.multipart(parts)?)?;
    Ok(())
}

pub fn deliver(db: &mut Client, smtp: &SmtpTransport) -> Result<(), Box<dyn Error>> {
    let claim = "SELECT id, format('<%s@example.com>', message_id) AS message_id, recipients, cc, bcc, \
                 reply_to, from_address, subject, body_text, body_html FROM mailroom_claim(20)";
    db.batch_execute("LISTEN outbox_due")?;
    loop {
        let mails = db.query(claim, &[])?;
        for mail in &mails {
            let id: i64 = mail.get("id");
            let files = db.query("SELECT * FROM mailroom_attachments($1)", &[&id])?;
            match send(smtp, mail, &files) {
                Ok(()) => db.execute("SELECT mailroom_mark_sent($1)", &[&id])?,
                Err(error) => db.execute(
                    "SELECT mailroom_mark_error($1, $2)",
                    &[&id, &error.to_string()],
                )?,
            };
        }
        if mails.is_empty() {
            let next = "SELECT greatest(1, least(60, extract(epoch FROM mailroom_next_due() - now())))::float";
            let wait: f64 = db.query_one(next, &[])?.get(0);
            let mut notifications = db.notifications();
            notifications
                .timeout_iter(Duration::from_secs_f64(wait))
                .next()?;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut db = Client::connect("host=/var/run/postgresql dbname=app", NoTls)?;
    deliver(
        &mut db,
        &SmtpTransport::builder_dangerous("localhost").build(),
    )
}
