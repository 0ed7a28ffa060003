//! The receiver of the events of one transport. Pure.

use zeroize::Zeroizing;

use super::EVENT_SECRET;
use super::mailgun::SigningKey;
use super::reported::Reported;
use super::resend::Secret;
use super::sendgrid::PublicKey;
use super::sns::{Certificate, Kind, Message, Topic};
use super::verify::{self, Password};
use super::{BODY_MAX, Received, Request, mailgun, postmark, resend, sendgrid, ses};
use crate::transport::invalid::Invalid;

/// What proves that a request comes from the provider.
enum Proof {
    /// A topic of SNS, and passwords, a signature, or both.
    Ses {
        topic: Topic,
        passwords: Vec<Password>,
    },
    SendGrid(Vec<PublicKey>),
    Postmark(Vec<Password>),
    Resend(Vec<Secret>),
    Mailgun(Vec<SigningKey>),
}

/// The receiver of the events of one transport: knows its provider and its secrets.
///
/// It has no `Debug`, and no function of it returns a secret.
pub struct Receiver {
    transport: String,
    proof: Proof,
}

impl Receiver {
    /// A receiver for `transport`, whose `provider` is as in the transports file: `ses`, `sendgrid`, `postmark`, `resend` or
    /// `mailgun`.
    ///
    /// `secrets` are those of `event_secret` or `event_secrets`, of which any counts: for Resend `whsec_…`, for SendGrid
    /// the verification key of the webhook, for Mailgun the webhook signing key, for Postmark and SES `user:password`. SES
    /// needs none if certificates are at hand. `topic` is `event_topic`, which SES needs.
    ///
    /// # Errors
    /// The setting that is missing or cannot be read; never its value.
    pub fn new(
        transport: &str,
        provider: &str,
        secrets: &[Zeroizing<String>],
        topic: Option<&str>,
    ) -> Result<Self, Invalid> {
        let proof = match provider {
            "ses" => Proof::Ses {
                topic: Topic::new(topic.ok_or_else(|| Invalid::missing("event_topic"))?)?,
                passwords: all(secrets, Password::new)?,
            },
            "sendgrid" => Proof::SendGrid(all(secrets, PublicKey::new)?),
            "postmark" => Proof::Postmark(all(secrets, Password::new)?),
            "resend" => Proof::Resend(all(secrets, Secret::new)?),
            "mailgun" => Proof::Mailgun(all(secrets, SigningKey::new)?),
            _ => {
                return Err(Invalid::new(
                    EVENT_SECRET,
                    "is only for ses, sendgrid, postmark, resend and mailgun",
                ));
            }
        };
        if secrets.is_empty() && !matches!(proof, Proof::Ses { .. }) {
            return Err(Invalid::missing(EVENT_SECRET));
        }
        Ok(Self {
            transport: transport.to_owned(),
            proof,
        })
    }

    /// Whether the provider's requests are messages of SNS: where certificates can be fetched,
    /// [`Receiver::receive_signed`] verifies them.
    pub fn is_sns(&self) -> bool {
        matches!(self.proof, Proof::Ses { .. })
    }

    /// Whether it has a secret. Without one, [`Receiver::receive`] takes no request.
    pub fn has_secret(&self) -> bool {
        !matches!(&self.proof, Proof::Ses { passwords, .. } if passwords.is_empty())
    }

    /// Verifies a request and reads its events. A request of SNS is genuine by its password and topic alone, without the
    /// signature.
    pub fn receive(&self, request: &Request<'_>) -> Received {
        self.normalize(request, self.read(request))
    }

    /// The URL of the certificate that signed a request of SNS, which is of SNS in the region of the topic. The request is
    /// not verified yet, apart from its password, if there is one, and its topic.
    ///
    /// # Errors
    /// What the request is instead: `Forged` or `Malformed`.
    pub fn certificate_url(&self, request: &Request<'_>) -> Result<String, Received> {
        let (topic, message) = self.message(request)?;
        message.certificate_url(topic).map(str::to_owned)
    }

    /// As [`Receiver::receive`], of a request of SNS with the certificate of [`Receiver::certificate_url`]: the signature
    /// must be valid too, and a password is needed only if there are secrets.
    pub fn receive_signed(&self, request: &Request<'_>, certificate: &Certificate) -> Received {
        let reported = self.message(request).and_then(|(topic, message)| {
            message.certificate_url(topic)?;
            message.verify(certificate)?;
            events_of(request, topic, &message)
        });
        self.normalize(request, reported)
    }

    fn read(&self, request: &Request<'_>) -> Result<Vec<Reported>, Received> {
        match &self.proof {
            Proof::Ses { .. } if !self.has_secret() => Err(Received::Forged(
                "there is no event_secret, and no certificate",
            )),
            Proof::Ses { .. } => {
                let (topic, message) = self.message(request)?;
                events_of(request, topic, &message)
            }
            Proof::SendGrid(keys) => {
                check_size(request)?;
                sendgrid::verify(request, keys)?;
                sendgrid::read(text(request)?)
            }
            Proof::Postmark(passwords) => {
                verify::check_password(request, passwords)?;
                postmark::read(text(request)?)
            }
            Proof::Resend(secrets) => {
                check_size(request)?;
                let id = resend::verify(request, secrets)?;
                resend::read(text(request)?, id)
            }
            Proof::Mailgun(keys) => mailgun::read(request, text(request)?, keys),
        }
    }

    /// A message of SNS whose password, if there is one, and topic are right.
    fn message(&self, request: &Request<'_>) -> Result<(&Topic, Message), Received> {
        let Proof::Ses { topic, passwords } = &self.proof else {
            return Err(Received::Malformed("the provider does not post by SNS"));
        };
        if !passwords.is_empty() {
            verify::check_password(request, passwords)?;
        }
        let message = Message::parse(text(request)?)?;
        message.check_topic(topic)?;
        Ok((topic, message))
    }

    fn normalize(
        &self,
        request: &Request<'_>,
        reported: Result<Vec<Reported>, Received>,
    ) -> Received {
        match reported {
            Err(received) => received,
            Ok(reported) if reported.is_empty() => Received::Ignored,
            Ok(reported) => {
                let event = |reported: Reported| reported.into_event(&self.transport, request.now);
                Received::Events(reported.into_iter().map(event).collect())
            }
        }
    }
}

fn all<T>(
    secrets: &[Zeroizing<String>],
    new: impl Fn(&str) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    secrets.iter().map(|secret| new(secret)).collect()
}

fn check_size(request: &Request<'_>) -> Result<(), Received> {
    if request.body.len() > BODY_MAX {
        return Err(Received::Malformed("the body has more than 4 MiB"));
    }
    Ok(())
}

/// The body as text.
fn text<'a>(request: &Request<'a>) -> Result<&'a str, Received> {
    check_size(request)?;
    std::str::from_utf8(request.body).map_err(|_| Received::Malformed("the body is not UTF-8"))
}

/// The events of a genuine message.
fn events_of(
    request: &Request<'_>,
    topic: &Topic,
    message: &Message,
) -> Result<Vec<Reported>, Received> {
    let sent_at = message.sent_at();
    if let Some(sent_at) = sent_at {
        verify::check_age(sent_at, request.now, request.retention)?;
    }
    match message.kind()? {
        Kind::Notification => Ok(ses::read(message.text(), message.id(), sent_at)),
        Kind::SubscriptionConfirmation => Err(Received::Confirm {
            url: message.confirm_url(topic)?.to_owned(),
        }),
        Kind::UnsubscribeConfirmation => Err(Received::Ignored),
    }
}
