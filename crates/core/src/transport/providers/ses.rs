//! Amazon SES, API v2. Pure.
//!
//! One mail is a SendEmail with `Simple` content. Several share a SendBulkEmail, which wants a template: ours,
//! inline, is nothing but variables, and each mail's subject and bodies are their values. SES puts values in as
//! they are and does not look for variables in them, so what a mail says, braces included, stays what it is.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::mailbox::{self, Mailbox};
use super::sigv4::Signer;
use super::{
    AUTO_SUBMITTED, Answer, MESSAGE_ID_HEADER, Message, Provider, Request, Verdict, answer, json,
    tag,
};
use crate::transport::credentials::Credentials;

/// Addresses that one SendEmail takes, and entries that one SendBulkEmail takes.
const MOST: usize = 50;
/// Bytes that a mail which shares a request may take in it: fifty of them fit into the megabyte it may have.
const SHARED_BYTES: usize = 16 * 1024;
const HOST_END: &str = ".amazonaws.com";

/// See the module.
pub struct Ses {
    endpoint: Endpoint,
    from: String,
    configuration_set: Option<String>,
    signer: Signer,
}

impl Ses {
    /// # Errors
    /// What is missing.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, String> {
        let known = credentials
            .get("region")
            .map_or_else(String::new, |region| {
                format!("https://email.{region}{HOST_END}")
            });
        if endpoint.is_empty() && known.is_empty() {
            return Err(Credentials::lacks("region"));
        }
        let endpoint = Endpoint::base(endpoint, &known)?;
        let region = credentials
            .get("region")
            .or_else(|| region_of(endpoint.host()))
            .ok_or_else(|| Credentials::lacks("region"))?
            .to_owned();
        Ok(Self {
            endpoint,
            from: Mailbox::parse(from)?.ascii_text(),
            configuration_set: credentials.get("configuration_set").map(str::to_owned),
            signer: Signer::new(credentials, &region, "ses")?,
        })
    }

    fn single(&self, message: &Message) -> Value {
        let mut body = Map::new();
        put_body(&mut body, "Text", message.body_text.as_deref());
        put_body(&mut body, "Html", message.body_html.as_deref());
        let mut request = self.envelope();
        request.insert("Destination".to_owned(), destination(message));
        request.insert(
            "Content".to_owned(),
            json!({"Simple": {
                "Subject": {"Data": message.subject, "Charset": "UTF-8"},
                "Body": body,
                "Headers": headers(message),
            }}),
        );
        request.insert("EmailTags".to_owned(), tags(message));
        Value::Object(request)
    }

    fn bulk(&self, messages: &[&Message]) -> Value {
        let mut content = Map::new();
        content.insert("Subject".to_owned(), json!("{{subject}}"));
        let has = |part: fn(&Message) -> &Option<String>| {
            messages.iter().any(|message| part(message).is_some())
        };
        if has(|message| &message.body_text) {
            content.insert("Text".to_owned(), json!("{{text}}"));
        }
        if has(|message| &message.body_html) {
            content.insert("Html".to_owned(), json!("{{html}}"));
        }
        let entries: Vec<Value> = messages
            .iter()
            .map(|message| {
                // All that the template names must be there, or SES accepts the mail and sends nothing.
                let values = json!({
                    "subject": message.subject,
                    "text": message.body_text.as_deref().unwrap_or(""),
                    "html": message.body_html.as_deref().unwrap_or(""),
                });
                json!({
                    "Destination": destination(message),
                    "ReplacementEmailContent": {
                        "ReplacementTemplate": {"ReplacementTemplateData": values.to_string()},
                    },
                    "ReplacementHeaders": headers(message),
                    "ReplacementTags": tags(message),
                })
            })
            .collect();
        let mut request = self.envelope();
        request.insert(
            "DefaultContent".to_owned(),
            json!({"Template": {
                "TemplateContent": content,
                "TemplateData": "{\"subject\":\"\",\"text\":\"\",\"html\":\"\"}",
            }}),
        );
        request.insert("BulkEmailEntries".to_owned(), Value::Array(entries));
        Value::Object(request)
    }

    fn envelope(&self) -> Map<String, Value> {
        let mut envelope = Map::new();
        envelope.insert("FromEmailAddress".to_owned(), json!(self.from));
        let set = self.configuration_set.as_deref();
        json::put_some(&mut envelope, "ConfigurationSetName", set);
        // Links are signed: they must not be rewritten, even if account or configuration set say so.
        envelope.insert(
            "ConfigurationOverrides".to_owned(),
            json!({"Tracking": {"ClickTrackingEnabled": "DISABLED", "OpenTrackingEnabled": "DISABLED"}}),
        );
        envelope
    }
}

/// The region in `email.eu-west-1.amazonaws.com`.
fn region_of(host: &str) -> Option<&str> {
    let (service, region) = host.strip_suffix(HOST_END)?.split_once('.')?;
    (service.starts_with("email") && !region.contains('.')).then_some(region)
}

fn put_body(body: &mut Map<String, Value>, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        body.insert(name.to_owned(), json!({"Data": text, "Charset": "UTF-8"}));
    }
}

fn destination(message: &Message) -> Value {
    let mut destination = Map::new();
    for (name, list) in [
        ("ToAddresses", &message.recipients),
        ("CcAddresses", &message.cc),
        ("BccAddresses", &message.bcc),
    ] {
        if !list.is_empty() {
            destination.insert(name.to_owned(), json!(list));
        }
    }
    Value::Object(destination)
}

fn headers(message: &Message) -> Value {
    json!([
        {"Name": MESSAGE_ID_HEADER, "Value": message.message_id},
        {"Name": AUTO_SUBMITTED.0, "Value": AUTO_SUBMITTED.1},
    ])
}

fn tags(message: &Message) -> Value {
    json!([
        {"Name": "message_id", "Value": message.message_id},
        {"Name": "outbox_id", "Value": message.id.to_string()},
        {"Name": "kind", "Value": tag(message)},
    ])
}

/// What fits into a bulk request: one address, and not much to say.
fn is_small(message: &Message) -> bool {
    let bytes = |body: &Option<String>| body.as_deref().map_or(0, quoted_twice);
    message.recipients.len() == 1
        && message.cc.is_empty()
        && message.bcc.is_empty()
        && quoted_twice(&message.subject) + bytes(&message.body_text) + bytes(&message.body_html)
            <= SHARED_BYTES
}

/// Bytes of this text as JSON within JSON.
fn quoted_twice(text: &str) -> usize {
    let quoted = |byte: u8| match byte {
        b'"' | b'\\' => 4,
        b'\n' | b'\r' | b'\t' | 8 | 12 => 3,
        0..32 => 7,
        _ => 1,
    };
    text.bytes().map(quoted).sum()
}

impl Provider for Ses {
    fn batch_limit(&self) -> usize {
        MOST
    }

    fn may_share(&self, first: &Message, other: &Message) -> bool {
        let alike =
            |part: fn(&Message) -> &Option<String>| part(first).is_some() == part(other).is_some();
        is_small(first)
            && is_small(other)
            && alike(|message| &message.body_text)
            && alike(|message| &message.body_html)
    }

    fn is_idempotent(&self) -> bool {
        false
    }

    fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String> {
        let ready = mailbox::all_ready(messages, MOST)?;
        let ready: Vec<&Message> = ready.iter().map(AsRef::as_ref).collect();
        let (path, body) = match ready[..] {
            [message] => ("/v2/email/outbound-emails", self.single(message)),
            _ => ("/v2/email/outbound-bulk-emails", self.bulk(&ready)),
        };
        let mut request = json::request(self.endpoint.uri(path)?, &body)?;
        self.signer.sign(&mut request, now)?;
        Ok(request)
    }

    fn verdicts(&self, messages: usize, answer: &Answer<'_>) -> Vec<Verdict> {
        let body = json::parse(answer.body);
        if !(200..300).contains(&answer.status) {
            return answer::for_all(messages, refusal(answer, &body));
        }
        if messages == 1 {
            return vec![Verdict::Sent {
                provider_id: answer::id_in(&body, "MessageId"),
            }];
        }
        match body["BulkEmailEntryResults"].as_array() {
            Some(results) if results.len() == messages => {
                results.iter().map(|result| entry(result, answer)).collect()
            }
            _ => vec![answer::unreadable(answer.status); messages],
        }
    }
}

/// The name of an error: in a header `MessageRejected:http://…`, or in the body, with a prefix or without.
fn error_name<'a>(answer: &'a Answer<'_>, body: &'a Value) -> Option<&'a str> {
    let text = answer::text(answer.headers, "x-amzn-errortype").or_else(|| {
        ["__type", "code", "type"]
            .iter()
            .find_map(|name| body[name].as_str())
    })?;
    let text = text.rsplit('#').next().unwrap_or(text);
    answer::code(text.split(':').next().unwrap_or(text))
}

fn refusal(answer: &Answer<'_>, body: &Value) -> Verdict {
    let name = error_name(answer, body);
    let reason = || answer::reason(answer.status, name);
    // The same name for what is wrong with a mail and with the account. Of the words nothing is kept.
    let says = |words: &str| {
        ["message", "Message"].iter().any(|member| {
            body[member]
                .as_str()
                .is_some_and(|text| text.to_ascii_lowercase().contains(words))
        })
    };
    match name.unwrap_or("") {
        "MessageRejected" if says("not verified") => Verdict::Broken {
            reason: format!("{}: the sender's address is not verified", reason()),
        },
        "ThrottlingException" | "Throttling" if says("quota") => Verdict::Broken {
            reason: format!("{}: the quota is spent", reason()),
        },
        "TooManyRequestsException" | "ThrottlingException" | "Throttling" => {
            answer::throttled(answer, name)
        }
        "MessageRejected" | "BadRequestException" => Verdict::Refused { reason: reason() },
        "LimitExceededException" => Verdict::Broken {
            reason: format!("{}: the quota is spent", reason()),
        },
        "AccountSuspendedException" | "SendingPausedException" => Verdict::Broken {
            reason: format!("{}: the account cannot send", reason()),
        },
        "MailFromDomainNotVerifiedException" => Verdict::Broken {
            reason: format!("{}: the sender's domain is not verified", reason()),
        },
        "NotFoundException" => Verdict::Broken {
            reason: format!("{}: there is no such configuration set", reason()),
        },
        "AccessDeniedException"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => Verdict::Broken {
            reason: format!("{}: the credentials were refused", reason()),
        },
        "RequestExpired" => Verdict::Broken {
            reason: format!("{}: the clock of this machine is wrong", reason()),
        },
        _ => answer::by_status(answer, name),
    }
}

/// What became of one mail of several.
fn entry(result: &Value, answer: &Answer<'_>) -> Verdict {
    let status = result["Status"].as_str().and_then(answer::code);
    let reason = || answer::reason(answer.status, status);
    let broken = |why: &str| Verdict::Broken {
        reason: format!("{}: {why}", reason()),
    };
    match status.unwrap_or("") {
        "SUCCESS" => Verdict::Sent {
            provider_id: answer::id_in(result, "MessageId"),
        },
        "TRANSIENT_FAILURE" => answer::retry(answer, status),
        "ACCOUNT_THROTTLED" => answer::throttled(answer, status),
        // Alone it is told what is wrong with it, or with the account.
        "MESSAGE_REJECTED"
        | "INVALID_PARAMETER"
        | "FAILED"
        | "TEMPLATE_NOT_FOUND"
        | "TEMPLATE_DOES_NOT_EXIST" => Verdict::Apart { reason: reason() },
        "ACCOUNT_DAILY_QUOTA_EXCEEDED" => broken("the quota is spent"),
        "ACCOUNT_SUSPENDED" | "ACCOUNT_SENDING_PAUSED" => broken("the account cannot send"),
        "MAIL_FROM_DOMAIN_NOT_VERIFIED" => broken("the sender's domain is not verified"),
        "CONFIGURATION_SET_NOT_FOUND"
        | "CONFIGURATION_SET_DOES_NOT_EXIST"
        | "CONFIGURATION_SET_SENDING_PAUSED"
        | "INVALID_SENDING_POOL_NAME" => broken("the configuration set cannot send"),
        _ => answer::unreadable(answer.status),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    const KEYS: &str = "access_key_id = AKIDEXAMPLE\nsecret_access_key = hunter2\n";

    fn ses(extra: &str) -> Ses {
        let credentials = fixture::credentials(&format!("{KEYS}{extra}"));
        Ses::new("", "Bücher <noreply@example.com>", &credentials).unwrap()
    }

    #[test]
    fn the_region_gives_the_endpoint_and_the_endpoint_the_region() {
        let error = Ses::new("", "a@example.com", &fixture::credentials(KEYS));
        assert_eq!(error.err().unwrap(), "region is missing");
        let there = ses("region = eu-west-1");
        assert_eq!(there.endpoint.host(), "email.eu-west-1.amazonaws.com");
        let host = "https://email-fips.us-gov-west-1.amazonaws.com";
        let ses = Ses::new(host, "a@example.com", &fixture::credentials(KEYS)).unwrap();
        let request = ses.request(&[&fixture::plain(1)], UNIX_EPOCH).unwrap();
        let authorization = request.headers["authorization"].to_str().unwrap();
        assert!(authorization.contains("/us-gov-west-1/ses/"));
        assert_eq!(region_of("localhost"), None);
        assert_eq!(region_of("email.a.b.amazonaws.com"), None);
    }

    #[test]
    fn one_mail_is_simple() {
        let ses = ses("region = us-east-1\nconfiguration_set = ours");
        let request = ses.request(&[&fixture::message()], UNIX_EPOCH).unwrap();
        assert_eq!(
            request.uri,
            "https://email.us-east-1.amazonaws.com/v2/email/outbound-emails"
        );
        let body = json::parse(&request.body);
        assert_eq!(
            body["FromEmailAddress"],
            "=?UTF-8?B?QsO8Y2hlcg==?= <noreply@example.com>"
        );
        assert_eq!(body["ConfigurationSetName"], "ours");
        assert_eq!(body["Destination"]["BccAddresses"][0], "alan@example.com");
        let simple = &body["Content"]["Simple"];
        assert_eq!(simple["Subject"]["Data"], "Grüße \"an\" {{ alle }}");
        assert_eq!(
            simple["Body"]["Text"]["Data"],
            "Dear Ada,\nsee {{you}} & <us>"
        );
        assert_eq!(
            simple["Headers"][1],
            json!({"Name": "Auto-Submitted", "Value": "auto-generated"})
        );
        assert_eq!(
            body["EmailTags"],
            json!([
                {"Name": "message_id", "Value": fixture::message().message_id},
                {"Name": "outbox_id", "Value": "7"},
                {"Name": "kind", "Value": "reminder"},
            ])
        );
        assert_eq!(
            body["ConfigurationOverrides"],
            json!({"Tracking": {"ClickTrackingEnabled": "DISABLED", "OpenTrackingEnabled": "DISABLED"}})
        );
        assert_eq!(simple["Headers"][0]["Name"], "X-Mailroom-Message-ID");
        assert_eq!(
            body["EmailTags"][0]["Value"],
            fixture::message().message_id.as_str()
        );
    }

    #[test]
    fn several_share_a_template_of_variables_alone() {
        let ses = ses("region = us-east-1");
        let (first, second) = (fixture::plain(1), fixture::plain(2));
        assert!(ses.may_share(&first, &second));
        let request = ses.request(&[&first, &second], UNIX_EPOCH).unwrap();
        assert!(request.uri.path().ends_with("/outbound-bulk-emails"));
        let body = json::parse(&request.body);
        assert_eq!(
            body["DefaultContent"]["Template"]["TemplateContent"],
            json!({"Subject": "{{subject}}", "Text": "{{text}}", "Html": "{{html}}"})
        );
        let entries = body["BulkEmailEntries"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        let template = &entries[1]["ReplacementEmailContent"]["ReplacementTemplate"];
        let data = json::parse(
            template["ReplacementTemplateData"]
                .as_str()
                .unwrap()
                .as_bytes(),
        );
        assert_eq!(data["text"], second.body_text.as_deref().unwrap());
        assert_eq!(data["subject"], second.subject.as_str());
        assert_eq!(
            entries[1]["ReplacementHeaders"][0]["Value"],
            second.message_id.as_str()
        );
    }

    #[test]
    fn what_does_not_fit_goes_alone() {
        let ses = ses("region = us-east-1");
        let small = fixture::plain(1);
        let no_html = Message {
            body_html: None,
            ..fixture::plain(2)
        };
        assert!(ses.may_share(&no_html, &no_html));
        assert!(!ses.may_share(&small, &no_html));
        assert!(!ses.may_share(&small, &fixture::message()));
        let large = Message {
            body_text: Some("x".repeat(SHARED_BYTES)),
            ..fixture::plain(3)
        };
        assert!(!ses.may_share(&small, &large));
        assert!(!ses.may_share(&large, &large));
    }

    #[test]
    fn the_worst_batch_keeps_to_a_megabyte() {
        let ses = ses("region = us-east-1");
        let messages: Vec<Message> = (0..50)
            .map(|number| Message {
                subject: String::new(),
                body_text: Some("\u{1}\"\\\n".repeat(SHARED_BYTES / 18)),
                body_html: None,
                ..fixture::plain(number)
            })
            .collect();
        let all: Vec<&Message> = messages.iter().collect();
        assert!(ses.may_share(all[0], all[1]));
        let request = ses.request(&all, UNIX_EPOCH).unwrap();
        assert!(request.body.len() < 1024 * 1024, "{}", request.body.len());
    }

    proptest! {
        #[test]
        fn the_size_of_a_text_is_known_beforehand(text in "[\0-~ü\\\\\"\r\n\t]{0,20}") {
            let within = serde_json::to_string(&text).unwrap();
            let whole = serde_json::to_string(&within).unwrap();
            // The inner quotes are quoted, and the outer ones are there.
            prop_assert_eq!(whole.len(), quoted_twice(&text) + 6);
        }
    }

    #[test]
    fn what_answers_to_one_mean() {
        let ses = ses("region = us-east-1");
        let verdict = |status, body: &str| fixture::verdict(&ses, status, body);
        assert_eq!(
            verdict(200, r#"{"MessageId": "0100-1"}"#),
            Verdict::Sent {
                provider_id: Some("0100-1".to_owned())
            }
        );
        assert_eq!(verdict(200, "<html>"), Verdict::Sent { provider_id: None });
        let named = |status, name: &str| verdict(status, &format!(r#"{{"__type": "{name}"}}"#));
        assert_eq!(
            named(400, "com.amazonaws.ses#MessageRejected"),
            Verdict::Refused {
                reason: "http 400 MessageRejected".to_owned()
            }
        );
        for (status, name) in [
            (429, "TooManyRequestsException"),
            (400, "ThrottlingException"),
        ] {
            assert!(matches!(named(status, name), Verdict::Throttled { .. }));
        }
        for (status, name) in [
            (400, "LimitExceededException"),
            (400, "AccountSuspendedException"),
            (400, "SendingPausedException"),
            (400, "MailFromDomainNotVerifiedException"),
            (404, "NotFoundException"),
            (403, "InvalidSignatureException"),
            (400, "IncompleteSignature"),
        ] {
            assert!(
                matches!(named(status, name), Verdict::Broken { .. }),
                "{name}"
            );
        }
        assert!(matches!(verdict(503, ""), Verdict::Retry { .. }));
        let quota =
            r#"{"__type": "ThrottlingException", "message": "Daily message quota exceeded"}"#;
        assert_eq!(
            verdict(400, quota),
            Verdict::Broken {
                reason: "http 400 ThrottlingException: the quota is spent".to_owned()
            }
        );
    }

    #[test]
    fn a_sender_who_is_not_verified_is_no_fault_of_the_mail() {
        let ses = ses("region = us-east-1");
        let mut headers = hyper::HeaderMap::new();
        let value = "MessageRejected:http://internal.amazon.com/coral/";
        headers.insert("x-amzn-errortype", value.parse().unwrap());
        let answer = Answer {
            status: 400,
            headers: &headers,
            body: b"{\"message\": \"Email address is not verified. canary@example.com\"}",
            now: UNIX_EPOCH,
        };
        assert_eq!(
            ses.verdicts(1, &answer),
            [Verdict::Broken {
                reason: "http 400 MessageRejected: the sender's address is not verified".to_owned()
            }]
        );
    }

    #[test]
    fn each_mail_of_several_has_its_result() {
        let ses = ses("region = us-east-1");
        let results = |statuses: &[&str]| {
            let results: Vec<Value> = statuses
                .iter()
                .map(|status| json!({"Status": status, "MessageId": "id"}))
                .collect();
            let body = json!({"BulkEmailEntryResults": results}).to_string();
            fixture::verdicts(&ses, 7, 200, &body)
        };
        let verdicts = results(&[
            "SUCCESS",
            "TRANSIENT_FAILURE",
            "ACCOUNT_THROTTLED",
            "MESSAGE_REJECTED",
            "ACCOUNT_DAILY_QUOTA_EXCEEDED",
            "FAILED",
            "SOMETHING_NEW",
        ]);
        assert!(matches!(verdicts[0], Verdict::Sent { .. }));
        assert!(matches!(verdicts[1], Verdict::Retry { .. }));
        assert!(matches!(verdicts[2], Verdict::Throttled { .. }));
        assert!(matches!(verdicts[3], Verdict::Apart { .. }));
        assert!(matches!(verdicts[4], Verdict::Broken { .. }));
        assert!(matches!(verdicts[5], Verdict::Apart { .. }));
        assert!(matches!(verdicts[6], Verdict::Unknown { .. }));
        let short = results(&["SUCCESS"]);
        assert!(short.iter().all(|v| matches!(v, Verdict::Unknown { .. })));
        let refused = fixture::verdicts(&ses, 2, 400, r#"{"__type": "BadRequestException"}"#);
        assert!(refused.iter().all(|v| matches!(v, Verdict::Apart { .. })));
    }
}
