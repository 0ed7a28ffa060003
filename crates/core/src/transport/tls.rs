//! The certificates that TLS trusts, and what to change if a handshake fails.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};

use super::causes::causes;
use super::http::presentable;
use super::invalid::Invalid;
use super::network_policy::Server;

/// The certificate authorities of the system, or those of Mozilla if the system has none: many container images, the
/// official one of PostgreSQL among them, contain no certificates.
fn authorities(system: Vec<CertificateDer<'_>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Some of the system's certificates may be of an unsupported kind.
    roots.add_parsable_certificates(system);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// The TLS configuration of a client. It trusts the authorities in this file, or, without a file, those of the system.
/// With `in_clear`, none are needed.
///
/// # Errors
/// The error in the file.
pub fn config(ca_file: Option<&Path>, in_clear: bool) -> Result<ClientConfig, Invalid> {
    let wrong = |what: String| Invalid::new("ca_file", what);
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let pem = std::fs::read(path)
            .map_err(|error| wrong(format!("names a file that cannot be read: {error}")))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let added = certificate.map(|certificate| roots.add(certificate));
            if !matches!(added, Ok(Ok(()))) {
                let what = "names a file that holds something else than certificates";
                return Err(wrong(what.to_owned()));
            }
        }
        if roots.is_empty() {
            return Err(wrong("names a file that holds no certificate".to_owned()));
        }
    } else if !in_clear {
        roots = authorities(rustls_native_certs::load_native_certs().certs);
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("cannot be used: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Why a handshake failed, if a setting of either side decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server does not begin with TLS.
    NoTls,
    /// The certificate is for other names.
    OtherName,
    /// No trusted authority has issued the certificate.
    UnknownAuthority,
    /// The server has the certificate of an authority.
    IsAuthority,
    /// The certificate has expired, or is not valid yet.
    WrongTime,
    /// The certificate is not of X.509 version 3.
    OldVersion,
}

impl Fault {
    /// The fault among the causes of this error.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = causes(error);
        match causes.find_map(|cause| cause.downcast_ref::<rustls::Error>())? {
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Self::NoTls),
            rustls::Error::InvalidCertificate(problem) => Self::of_certificate(problem),
            _ => None,
        }
    }

    fn of_certificate(problem: &CertificateError) -> Option<Self> {
        match problem {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some(Self::OtherName)
            }
            // The second is of an authority with the name of one that is trusted, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Some(Self::UnknownAuthority)
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Some(Self::WrongTime),
            CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>()? {
                webpki::Error::CaUsedAsEndEntity => Some(Self::IsAuthority),
                webpki::Error::UnsupportedCertVersion => Some(Self::OldVersion),
                _ => None,
            },
            _ => None,
        }
    }

    /// What to change, by the keys of the transports file.
    fn remedy(self, whose: Server) -> &'static str {
        match (self, whose) {
            (Self::NoTls, Server::Relay) => {
                "the server does not begin with TLS: write tls = \"starttls\", or in port one that does"
            }
            (Self::NoTls, Server::Endpoint) => {
                "the server does not begin with TLS: write in endpoint a port that does"
            }
            (Self::OtherName, Server::Relay) => "write in host a name that the certificate has",
            (Self::OtherName, Server::Endpoint) => {
                "write in endpoint a name that the certificate has"
            }
            (Self::UnknownAuthority, _) => {
                "write in ca_file the name of a file with the certificate of the authority that issued the server's"
            }
            (Self::IsAuthority, _) => {
                "the server presents the certificate of an authority: give it one that the authority issued, and keep the authority's in ca_file"
            }
            (Self::WrongTime, _) => {
                "renew the server's certificate, or correct the clock of this machine: no key lets it pass"
            }
            (Self::OldVersion, _) => "the server needs a certificate of X.509 version 3",
        }
    }
}

/// A failed handshake in words: the error, and what to change.
pub(super) fn failure(error: &(dyn Error + 'static), whose: Server) -> String {
    let cause = causes(error).last().unwrap_or(error);
    let cause = presentable(&cause.to_string());
    match Fault::of(error) {
        Some(fault) => format!("{cause}; {}", fault.remedy(whose)),
        None => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of an authority that no system trusts.
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
            // The authorities of the providers' endpoints.
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
