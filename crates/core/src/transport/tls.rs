//! The certificates that TLS trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::invalid::Invalid;

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
