//! What the messages of Amazon SNS need from its servers: certificates, and the confirmation of a subscription.
//!
//! The URLs were checked to be of SNS in the region of the topic; the connection verifies that it is that server, and the
//! network policy that it is public.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mailroom_core::events::sns::Certificate;
use mailroom_core::transport::http::{Client, ClientOptions, Document};
use mailroom_core::transport::network_policy::{AllowedNetworks, Exposed};
use mailroom_core::transport::tls;

/// Maximum size of a response in bytes.
const DOCUMENT_MAX: usize = 64 * 1024;
/// Maximum time of a request, and of its connection.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many certificates are kept, and for how long. SNS has one in each region, which it replaces once a year.
const KEPT: usize = 8;
const KEPT_TIME: Duration = Duration::from_secs(24 * 3600);

/// Why there is no certificate.
pub enum Missing {
    /// The server does not have it: the message is not of SNS.
    Unknown,
    /// The server cannot be asked now.
    Unreached(String),
}

struct Kept {
    url: String,
    since: Instant,
    certificate: Rc<Certificate>,
}

/// A client of SNS, and its certificates.
#[derive(Default)]
pub struct Sns {
    client: OnceCell<Client>,
    kept: RefCell<Vec<Kept>>,
}

impl Sns {
    /// The certificate at this URL.
    ///
    /// # Errors
    /// If it does not exist, or the server cannot be asked.
    pub async fn certificate(&self, url: &str) -> Result<Rc<Certificate>, Missing> {
        if let Some(certificate) = self.find(url, Instant::now()) {
            return Ok(certificate);
        }
        let document = self.get(url).await.map_err(Missing::Unreached)?;
        let pem = match document.status {
            200 => document.body,
            // S3, which has the files, answers 403 for one that does not exist.
            403 | 404 => return Err(Missing::Unknown),
            status => return Err(Missing::Unreached(format!("SNS answered {status}"))),
        };
        let certificate = Certificate::from_pem(&pem)
            .ok_or_else(|| Missing::Unreached("this is no certificate".to_owned()))?;
        Ok(self.keep(url, certificate, Instant::now()))
    }

    /// Confirms a subscription.
    ///
    /// # Errors
    /// Why that failed.
    pub async fn confirm(&self, url: &str) -> Result<(), String> {
        match self.get(url).await?.status {
            200 => Ok(()),
            status => Err(format!("SNS answered {status}")),
        }
    }

    async fn get(&self, url: &str) -> Result<Document, String> {
        let uri = url.parse().map_err(|_| "this is no URL".to_owned())?;
        self.client()?.get(uri, DOCUMENT_MAX).await
    }

    /// The client, which is made when it is needed first.
    fn client(&self) -> Result<&Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let tls = tls::config(None, false).map_err(|invalid| invalid.to_string())?;
        let client = Client::new(ClientOptions {
            networks: AllowedNetworks::default(),
            exposed: Exposed::Credentials,
            tls,
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
        });
        Ok(self.client.get_or_init(|| client))
    }

    fn find(&self, url: &str, now: Instant) -> Option<Rc<Certificate>> {
        let mut kept = self.kept.borrow_mut();
        kept.retain(|one| now.saturating_duration_since(one.since) < KEPT_TIME);
        let found = kept.iter().find(|one| one.url == url);
        found.map(|one| Rc::clone(&one.certificate))
    }

    fn keep(&self, url: &str, certificate: Certificate, now: Instant) -> Rc<Certificate> {
        let certificate = Rc::new(certificate);
        let mut kept = self.kept.borrow_mut();
        kept.retain(|one| one.url != url);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push(Kept {
            url: url.to_owned(),
            since: now,
            certificate: Rc::clone(&certificate),
        });
        certificate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Certificate {
        let vectors = include_str!("../../../../tests/vectors/event_signatures.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        let pem = vectors["sns"]["certificate"].as_str().unwrap();
        Certificate::from_pem(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_few_certificates_are_kept_for_a_day() {
        let (sns, start) = (Sns::default(), Instant::now());
        let url = |number: usize| format!("https://sns.eu-west-1.amazonaws.com/{number}.pem");
        for number in 0..=KEPT {
            sns.keep(&url(number), certificate(), start);
            sns.keep(&url(number), certificate(), start);
        }
        assert_eq!(sns.kept.borrow().len(), KEPT);
        assert!(sns.find(&url(0), start).is_none(), "the oldest has gone");
        let almost = start + KEPT_TIME - Duration::from_secs(1);
        assert!(sns.find(&url(KEPT), almost).is_some());
        assert!(sns.find(&url(KEPT), start + KEPT_TIME).is_none());
        assert!(sns.kept.borrow().is_empty());
    }

    #[test]
    fn the_network_policy_holds() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let error = runtime.block_on(Sns::default().confirm("https://127.0.0.1/"));
        let error = error.unwrap_err();
        assert!(error.contains("127.0.0.1"), "{error}");
    }
}
