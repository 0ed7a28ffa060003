//! Messages of Amazon SNS: topic, address of the certificate, and signature. Pure.
//!
//! SNS signs the messages of every topic of every customer with the same certificates, so a valid signature proves nothing
//! without the topic. The certificate is at a URL that the message names: [`super::Receiver::certificate_url`] checks it, and
//! the caller gets it by HTTPS, which is what makes it genuine, because SNS does not send the chain of its issuers.
//! Format: "Parsing Amazon SNS message formats" and "Verifying the signatures of Amazon SNS messages" in the developer guide
//! of Amazon SNS.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use serde::Deserialize;
use webpki::EndEntityCert;
use webpki::ring::RSA_PKCS1_2048_8192_SHA256;

use super::{Received, timestamp};
use crate::transport::invalid::Invalid;

/// The key of the transports file with the topic.
const EVENT_TOPIC: &str = "event_topic";
/// Maximum size of a certificate in bytes, as PEM.
const CERTIFICATE_MAX: usize = 64 * 1024;
/// Maximum octets of an identifier, a topic, and a URL.
const ID_MAX: usize = 255;
const URL_MAX: usize = 2048;
/// How the path of a URL that confirms a subscription begins.
const CONFIRM: &str = "?Action=ConfirmSubscription&";
/// The signature of RSA with SHA-1 (RFC 8017), as an algorithm of certificates.
const SHA1_WITH_RSA: [u8; 13] = [
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
];

/// The ARN of a topic, with what its URLs depend on.
pub(super) struct Topic {
    arn: String,
    /// `https://sns.us-east-1.amazonaws.com/`.
    origin: String,
}

impl Topic {
    /// Reads `arn:aws:sns:us-east-1:123456789012:ses-events`.
    ///
    /// # Errors
    /// If it is not such an ARN.
    pub(super) fn new(arn: &str) -> Result<Self, Invalid> {
        let parts: Vec<&str> = arn.split(':').collect();
        let is_region = |region: &str| {
            let fits =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            region.len() >= 3 && region.bytes().all(fits)
        };
        match parts.as_slice() {
            ["arn", partition, "sns", region, _, name]
                if is_region(region) && !name.is_empty() && arn.len() <= ID_MAX =>
            {
                let china = if *partition == "aws-cn" { ".cn" } else { "" };
                Ok(Self {
                    arn: arn.to_owned(),
                    origin: format!("https://sns.{region}.amazonaws.com{china}/"),
                })
            }
            _ => Err(Invalid::new(
                EVENT_TOPIC,
                "is not the ARN of a topic of SNS",
            )),
        }
    }

    /// What follows the host in a URL of SNS in the region of the topic.
    fn path<'a>(&self, url: &'a str) -> Option<&'a str> {
        let is_plain = url.len() <= URL_MAX && url.bytes().all(|byte| byte.is_ascii_graphic());
        url.strip_prefix(&self.origin).filter(|_| is_plain)
    }
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Notification,
    SubscriptionConfirmation,
    UnsubscribeConfirmation,
}

/// A message of SNS.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Message {
    #[serde(rename = "Type")]
    kind: String,
    message_id: String,
    topic_arn: Option<String>,
    subject: Option<String>,
    message: String,
    timestamp: Option<String>,
    token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    subscribe_url: Option<String>,
    signature_version: Option<String>,
    signature: Option<String>,
    #[serde(rename = "SigningCertURL")]
    signing_cert_url: Option<String>,
}

impl Message {
    /// Reads the body of a request.
    pub(super) fn parse(body: &str) -> Result<Self, Received> {
        // Raw message delivery posts the text alone, without a signature.
        let message: Self = serde_json::from_str(body).map_err(|_| {
            Received::Malformed("the body is not a message of SNS; turn raw message delivery off")
        })?;
        let id = message.message_id.as_bytes();
        if id.is_empty() || id.len() > ID_MAX || !id.iter().all(u8::is_ascii_graphic) {
            return Err(Received::Malformed("the message of SNS has no identifier"));
        }
        Ok(message)
    }

    /// Its type.
    pub(super) fn kind(&self) -> Result<Kind, Received> {
        match self.kind.as_str() {
            "Notification" => Ok(Kind::Notification),
            "SubscriptionConfirmation" => Ok(Kind::SubscriptionConfirmation),
            "UnsubscribeConfirmation" => Ok(Kind::UnsubscribeConfirmation),
            _ => Err(Received::Malformed(
                "the message of SNS is of an unknown type",
            )),
        }
    }

    /// Its identifier, the same each time that SNS posts it.
    pub(super) fn id(&self) -> &str {
        &self.message_id
    }

    /// Its text.
    pub(super) fn text(&self) -> &str {
        &self.message
    }

    /// When it was published.
    pub(super) fn sent_at(&self) -> Option<SystemTime> {
        self.timestamp.as_deref().and_then(timestamp::rfc3339)
    }

    /// Checks that it is of this topic.
    pub(super) fn check_topic(&self, topic: &Topic) -> Result<(), Received> {
        if self.topic_arn.as_deref() == Some(&topic.arn) {
            Ok(())
        } else {
            Err(Received::Forged(
                "the message is not of the topic event_topic",
            ))
        }
    }

    /// The URL that confirms the subscription.
    pub(super) fn confirm_url(&self, topic: &Topic) -> Result<&str, Received> {
        self.subscribe_url
            .as_deref()
            .filter(|url| {
                topic
                    .path(url)
                    .is_some_and(|path| path.starts_with(CONFIRM))
            })
            .ok_or(Received::Forged(
                "SubscribeURL is not of SNS in the region of event_topic",
            ))
    }

    /// The URL of the certificate: of SNS in the region of the topic, never another host.
    pub(super) fn certificate_url(&self, topic: &Topic) -> Result<&str, Received> {
        let is_file = |path: &str| {
            path.strip_prefix("SimpleNotificationService-")
                .and_then(|path| path.strip_suffix(".pem"))
                .is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        };
        self.signing_cert_url
            .as_deref()
            .filter(|url| topic.path(url).is_some_and(is_file))
            .ok_or(Received::Forged(
                "SigningCertURL is not of SNS in the region of event_topic",
            ))
    }

    /// Checks that the key of this certificate signed it.
    pub(super) fn verify(&self, certificate: &Certificate) -> Result<(), Received> {
        let forged = Received::Forged("the signature is not of the certificate of SNS");
        let signature = self.signature.as_deref().unwrap_or_default();
        let signature = STANDARD.decode(signature).map_err(|_| forged.clone())?;
        let algorithm: &dyn SignatureVerificationAlgorithm = match self.signature_version.as_deref()
        {
            Some("1") => &RsaSha1,
            Some("2") => RSA_PKCS1_2048_8192_SHA256,
            _ => return Err(Received::Forged("the version of the signature is unknown")),
        };
        let signed = self.signed();
        EndEntityCert::try_from(&certificate.0)
            .and_then(|certificate| {
                certificate.verify_signature(algorithm, signed.as_bytes(), &signature)
            })
            .map_err(|_| forged)
    }

    /// What is signed: names and values by the order of names, each on a line of its own, with a line break at the end.
    /// Which of them a message has depends on its type.
    fn signed(&self) -> String {
        let mut signed = String::with_capacity(self.message.len() + 1024);
        for (name, value) in [
            ("Message", Some(&self.message)),
            ("MessageId", Some(&self.message_id)),
            ("Subject", self.subject.as_ref()),
            ("SubscribeURL", self.subscribe_url.as_ref()),
            ("Timestamp", self.timestamp.as_ref()),
            ("Token", self.token.as_ref()),
            ("TopicArn", self.topic_arn.as_ref()),
            ("Type", Some(&self.kind)),
        ] {
            if let Some(value) = value {
                for line in [name, value.as_str()] {
                    signed.push_str(line);
                    signed.push('\n');
                }
            }
        }
        signed
    }
}

/// A certificate of SNS.
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// Reads the first certificate of a PEM file of at most 64 KiB; `None` if there is none that can be read.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        if pem.len() > CERTIFICATE_MAX {
            return None;
        }
        let certificate = CertificateDer::from_pem_slice(pem).ok()?;
        let is_one = EndEntityCert::try_from(&certificate).is_ok();
        is_one.then_some(Self(certificate))
    }
}

/// RSA with PKCS #1 and SHA-1, the signature of version 1.
#[derive(Debug)]
struct RsaSha1;

impl SignatureVerificationAlgorithm for RsaSha1 {
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(&SHA1_WITH_RSA)
    }

    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }
}
