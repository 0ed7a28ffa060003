//! A certification authority for HTTPS servers, which only configured clients trust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::process::directory;

/// The password of the key stores, which exist for the time of a test.
pub const PASSWORD: &str = "password";

/// An authority that no client trusts by default, and its certificate for `localhost`, which is not for 127.0.0.1.
pub struct Authority {
    /// The authority's own certificate.
    pub certificate: PathBuf,
    /// The server's key and certificate, as PKCS #12.
    pub keystore: PathBuf,
    /// The server's key as PEM; `chain` is its certificate.
    pub key: PathBuf,
    pub chain: PathBuf,
}

impl Authority {
    /// The authority of this test program.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(Self::create)
    }

    pub fn create() -> Self {
        let home = directory();
        let run = |script: &str| {
            let output = Command::new("sh")
                .args(["-euc", script])
                .current_dir(&home)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script}\n{errors}");
        };
        let ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        run(&format!(
            "openssl req -x509 {ec} -keyout ca.key -out ca.pem -days 2 -subj '/CN=Test authority' \
                 -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign'
             printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >extensions
             openssl req {ec} -keyout server.key -out server.csr -subj '/CN=localhost'
             openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile extensions -out server.pem
             openssl pkcs12 -export -in server.pem -inkey server.key -certfile ca.pem -name server \
                 -passout pass:{PASSWORD} -out server.p12
             chmod a+r ca.pem"
        ));
        let file = |name: &str| Path::new(&home).join(name);
        Self {
            certificate: file("ca.pem"),
            keystore: file("server.p12"),
            key: file("server.key"),
            chain: file("server.pem"),
        }
    }
}
