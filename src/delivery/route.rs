//! The settings of delivery and the files they name, made into a way to send.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::credentials::Credentials;
use super::engine::Setup;
use super::http::Conduct;
use super::providers::{self, Provider};
use crate::server;
use crate::settings::sending;

/// So many slow requests there may be beside each that counts.
const SLOW_FACTOR: usize = 32;
/// Files that the server itself may want to have open in this process.
const SERVER_FILES: usize = 512;

/// A way to send, and what the worker has to know of it.
pub struct Route {
    /// For the engine.
    pub setup: Setup,
    /// The same provider as in there.
    pub provider: Arc<dyn Provider>,
    /// Requests at a time.
    pub concurrency: usize,
}

/// Reads settings and files as they are now.
///
/// # Errors
/// What is missing or wrong, without anything secret.
pub fn plan() -> Result<Route, String> {
    let endpoint = sending::endpoint().unwrap_or_default();
    let from = sending::from().unwrap_or_default();
    let credentials = match sending::credentials_file() {
        Some(path) => {
            Credentials::load(&path)
                .map_err(|error| format!("{error} ({})", error.hint()))?
                .0
        }
        None => return Err("mailroom.credentials_file is not set".to_owned()),
    };
    let sender = sending::sender();
    let provider: Arc<dyn Provider> =
        providers::choose(sender.as_str(), &endpoint, &from, &credentials)?.into();
    let concurrency = sending::http_concurrency();
    let files = server::allow_files(SERVER_FILES + (1 + SLOW_FACTOR) * concurrency);
    let slow = files
        .saturating_sub(SERVER_FILES + concurrency)
        .min(SLOW_FACTOR * concurrency);
    let conduct = Conduct {
        networks: sending::allowed_networks(),
        tls: tls(endpoint.starts_with("http:"))?,
        timeout: sending::http_timeout(sender),
        connect_timeout: sending::connect_timeout(),
    };
    Ok(Route {
        setup: Setup {
            provider: Arc::clone(&provider),
            conduct,
            slots: (concurrency, slow),
        },
        provider,
        concurrency,
    })
}

/// The system's authorities, or, if it has none, those of Mozilla that are built in: many container images, the
/// official one of PostgreSQL among them, come without certificates.
fn authorities(system: Vec<CertificateDer<'_>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Some of the system's may be of a kind that is not supported any more.
    roots.add_parsable_certificates(system);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// `in_clear`: nobody has to vouch for anybody.
fn tls(in_clear: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = sending::ca_file() {
        let shown = path.display();
        let pem = std::fs::read(&path)
            .map_err(|error| format!("mailroom.ca_file \"{shown}\" cannot be read: {error}"))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let added = certificate.map(|certificate| roots.add(certificate));
            if !matches!(added, Ok(Ok(()))) {
                return Err(format!(
                    "mailroom.ca_file \"{shown}\" holds something else than certificates"
                ));
            }
        }
        if roots.is_empty() {
            return Err(format!("mailroom.ca_file \"{shown}\" holds no certificate"));
        }
    } else if !in_clear {
        roots = authorities(rustls_native_certs::load_native_certs().certs);
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an authority that nobody trusts by default.
    const TEST: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBNDCB56ADAgECAhQty2Su4D/fOXpYOr/ixOwbHzT30zAFBgMrZXAwDzENMAsG
A1UEAwwEVGVzdDAgFw0yNjExMjMwMTQ2MjJaGA8yMTI2MTAzMDAxNDYyMlowDzEN
MAsGA1UEAwwEVGVzdDAqMAUGAytlcAMhAGBb2OUSeRGZd3ldXuG5j+nr73KX50Bi
XKua2/mHqpyxo1MwUTAdBgNVHQ4EFgQUgwD04M6WFLMaxHCANPUlRF1tPw0wHwYD
VR0jBBgwFoAUgwD04M6WFLMaxHCANPUlRF1tPw0wDwYDVR0TAQH/BAUwAwEB/zAF
BgMrZXADQQAWh33j+B+1UZ9WpLoPzOdMqNhEDz2pzzA73H7eAWesvKAUMEcjVcLc
JSHWiI1EMtQRX7xgUuRBOCwDAM9YhrUJ
-----END CERTIFICATE-----";

    fn has(roots: &RootCertStore, name: &[u8]) -> bool {
        let is_in = |subject: &[u8]| subject.windows(name.len()).any(|part| part == name);
        roots.roots.iter().any(|root| is_in(&root.subject))
    }

    #[test]
    fn a_system_without_authorities_is_lent_those_of_the_web() {
        for system in [vec![], vec![CertificateDer::from(b"none".to_vec())]] {
            let roots = authorities(system);
            assert_eq!(roots.len(), webpki_roots::TLS_SERVER_ROOTS.len());
            // Those that the providers' endpoints have their certificates from.
            for name in [
                "Amazon Root CA 1",
                "ISRG Root X1",
                "DigiCert Global Root G2",
            ] {
                assert!(has(&roots, name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn the_authorities_of_a_system_that_has_some_are_all_there_are() {
        let certificate = CertificateDer::from_pem_slice(TEST).unwrap();
        let roots = authorities(vec![certificate]);
        assert_eq!(roots.len(), 1);
        assert!(has(&roots, b"Test"));
    }
}
