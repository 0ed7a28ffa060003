//! Redirected mail: every transport sends it to one address and to no other.

use std::time::UNIX_EPOCH;

use super::file::Directory;
use super::providers::{choose, fixture};
use super::smtp::tests::server::Script;
use super::smtp::tests::{Seen, deliver};
use super::{log, providers};
use crate::message::Message;

const DEVELOPER: &str = "dev@example.org";
/// Where answers go, which a redirection leaves alone.
const ANSWERS: &str = "help@example.net";
const ORIGINAL: &str = "ada@example.com, grace@example.com, alan@example.com";

fn redirected() -> Message {
    let mut message = fixture::message();
    message.redirect(DEVELOPER.to_owned());
    message
}

fn says_original_once(text: &str, messages: usize, whose: &str) {
    assert_eq!(text.matches(ORIGINAL).count(), messages, "{whose}: {text}");
    assert_eq!(text.matches(DEVELOPER).count(), messages, "{whose}: {text}");
    let rest = text.replace(ORIGINAL, "");
    assert!(!rest.contains("@example.com"), "{whose}: {rest}");
}

#[test]
fn redirected_mail_names_its_recipients_and_no_provider_sends_it_to_them() {
    let all = fixture::credentials(&format!(
        "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    ));
    for providers::Entry { name, .. } in providers::ALL {
        let provider = choose(name, "https://a.example", "shop@example.net", &all).unwrap();
        // All mails of a batch go to the same address, each as a mail of its own.
        for count in [1, provider.batch_limit().min(3)] {
            let mut messages = vec![redirected(); count];
            for (message, number) in messages.iter_mut().zip(1..) {
                message.message_id = fixture::plain(number).message_id;
            }
            let (first, other) = (&messages[0], &messages[count - 1]);
            assert!(count == 1 || provider.may_share(first, other), "{name}");
            let messages: Vec<&Message> = messages.iter().collect();
            let request = provider.request(&messages, UNIX_EPOCH).unwrap();
            let body = String::from_utf8(request.body.to_vec()).unwrap();
            let body = body
                .replace("%40", "@")
                .replace("%2C", ",")
                .replace('+', " ")
                .replace("\",\"", ", ");
            says_original_once(&body, count, name);
            assert!(body.contains(ANSWERS), "{name}: {body}");
            let place = match name {
                "webhook" => "\"original_recipients\":[\"ada@example.com",
                "mailgun" => "&h%3AX-Original-To=ada@example.com",
                _ => "X-Original-To",
            };
            assert_eq!(body.matches(place).count(), count, "{name}: {body}");
        }
    }
}

#[test]
fn redirected_mail_keeps_its_files() {
    let all = fixture::credentials(&format!(
        "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    ));
    let mut message = fixture::with_files();
    message.redirect(DEVELOPER.to_owned());
    for providers::Entry { name, .. } in providers::ALL {
        let provider = choose(name, "https://a.example", "shop@example.net", &all).unwrap();
        let request = provider.request(&[&message], UNIX_EPOCH).unwrap();
        let has = |part: &[u8]| request.body.windows(part.len()).any(|found| found == part);
        let written = match name {
            "mailgun" => &message.attachments[0].content[..],
            _ => fixture::PDF.as_bytes(),
        };
        assert!(has(written) && has(DEVELOPER.as_bytes()), "{name}");
    }
    let (_, line) = log::deliver(&message);
    assert!(line.contains("alan@example.com with Rechnung "), "{line}");
}

#[test]
fn a_relay_is_told_the_one_recipient() {
    let (_, seen): (_, std::sync::Arc<Seen>) = deliver(Script::default(), &redirected());
    assert_eq!(seen.commands("RCPT"), [format!("RCPT TO:<{DEVELOPER}>")]);
    let mails = seen.mails.lock().unwrap();
    let header = format!("\r\nX-Original-To: {ORIGINAL}\r\n");
    let mail = String::from_utf8(mails[0].clone()).unwrap();
    assert!(mail.replace("\r\n ", " ").contains(&header), "{mail}");
    assert!(
        mail.contains(&format!("\r\nTo: <{DEVELOPER}>\r\n")),
        "{mail}"
    );
    assert!(!mail.contains("\r\nCc:"), "{mail}");
    assert!(
        mail.contains(&format!("\r\nReply-To: <{ANSWERS}>")),
        "{mail}"
    );
}

#[test]
fn a_file_and_the_log_tell_both() {
    let name = format!("mailroom-redirected-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    let directory = Directory::new(path.clone(), "shop@example.net").unwrap();
    directory.deliver(&redirected(), UNIX_EPOCH);
    let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap();
    let mail = std::fs::read_to_string(file.path()).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let unfolded = mail.replace("\r\n ", " ");
    says_original_once(&unfolded, 1, "file");
    let (_, line) = log::deliver(&redirected());
    says_original_once(&line, 1, "log");
    assert!(
        line.contains("to dev@example.org instead of ada@"),
        "{line}"
    );
}

#[test]
fn what_could_not_be_sent_to_its_recipients_is_not_redirected_either() {
    let mut message = redirected();
    message.original_recipients[1] = "grace@example.com\r\nBcc: eve@example.com".to_owned();
    let refused = providers::mailbox::Ready::new(&message, 10).err().unwrap();
    assert!(refused.starts_with("original_recipients[2] "), "{refused}");
}
