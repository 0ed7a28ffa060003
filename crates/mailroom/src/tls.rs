//! TLS to a database: certificates and their verification.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No TLS.
    Disable,
    /// TLS if the server supports it; its certificate is not verified.
    Prefer,
    /// TLS; the server's certificate is not verified.
    Require,
    /// TLS; the certificate must be issued by a trusted authority, for any name.
    VerifyCa,
    /// TLS; the certificate must be issued by a trusted authority for this host.
    VerifyFull,
}

/// `sslrootcert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The authorities that the system trusts.
    System,
    /// The authorities in this file.
    File(PathBuf),
}

/// The options of TLS to a database.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether to use TLS, and how to verify the server.
    pub mode: Mode,
    /// The trusted authorities.
    pub roots: Option<Roots>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The configuration of rustls.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn client_config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let verifier: Arc<dyn ServerCertVerifier> = match self.mode {
            Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(AnyServer(provider)),
            Mode::VerifyCa => Arc::new(AnyName(self.verifier(provider)?)),
            Mode::VerifyFull => self.verifier(provider)?,
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(certificate, "sslcert")?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|_| "sslkey names a file that holds no key in PEM".to_owned())?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("sslcert and sslkey do not go together: {error}"))
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(Roots::File(path)) => {
                for certificate in certificates(path, "sslrootcert")? {
                    roots
                        .add(certificate)
                        .map_err(|error| format!("sslrootcert: {error}"))?;
                }
            }
            Some(Roots::System) => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            None => {
                return Err(
                    "there is no root certificate: name a file in sslrootcert, or sslrootcert=system"
                        .to_owned(),
                );
            }
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("sslrootcert: {error}"))
    }
}

fn certificates(path: &PathBuf, option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|_| format!("{option} names a file that cannot be read"))?
        .collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!(
            "{option} names a file that holds something else than certificates"
        )),
    }
}

/// Accepts every certificate, as libpq does unless it is told to verify: this protects against passive listeners only.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts the certificate of a trusted authority for any name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is verified last.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
