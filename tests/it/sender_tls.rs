//! `mailroom` (in MAILROOM_SEND) and the TLS of a server: the modes, and the password file, of libpq.

// needs: openssl

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::cluster::{Stop, eventually};
use crate::sender_scene::{Scene, program};

/// A server that takes connections over TCP, with TLS.
struct Secured {
    scene: Scene,
    port: u16,
    authority: PathBuf,
    passfile: PathBuf,
}

impl Secured {
    fn start() -> Self {
        let port = crate::process::free_port();
        let scene = Scene::start(&["password_encryption = 'scram-sha-256'"]);
        let [authority, passfile] =
            ["ca.pem", "pgpass"].map(|name| scene.cluster.scratch().join(name));
        std::fs::write(&passfile, "*:*:app:sender:hunter2\n").unwrap();
        std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(0o600)).unwrap();
        let secured = Self {
            scene,
            port,
            authority,
            passfile,
        };
        secured.run(&format!(
            "openssl req -x509 $ec -keyout ca.key -out {authority} -days 2 -subj '/CN=Test authority'
             printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >extensions
             openssl req $ec -keyout server.key -out server.csr -subj '/CN=localhost'
             chmod 600 server.key
             openssl x509 -req -in server.csr $ca -days 2 -extfile extensions -out server.crt
             printf \"ssl = on\\nport = {port}\\nlisten_addresses = '127.0.0.1'\\n\" >>postgresql.auto.conf
             echo 'local all all trust' >pg_hba.conf
             echo 'hostssl all all 127.0.0.1/32 scram-sha-256' >>pg_hba.conf",
            authority = secured.authority.display()
        ));
        secured.scene.cluster.stop_server(Stop::Fast);
        secured.scene.cluster.start_server();
        eventually("the server to speak TLS", || {
            secured.check("localhost", "sslmode=require").ok()
        });
        secured
    }

    /// Runs commands of the shell in the data directory.
    fn run(&self, script: &str) {
        let script = format!(
            "ec='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
             ca='-CA {} -CAkey ca.key -CAcreateserial'
             {script}",
            self.authority.display()
        );
        let cluster = &self.scene.cluster;
        let mut shell = cluster.as_server_user(Command::new("sh"));
        let shell = shell.current_dir(cluster.data()).args(["-euc", &script]);
        let made = shell.output().unwrap();
        let told = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{told}");
    }

    /// What `mailroom check` prints of the database: `Ok` if it can be used.
    fn check(&self, host: &str, options: &str) -> Result<String, String> {
        let url = format!("postgresql://sender@{host}:{}/app?{options}", self.port);
        let output = program()
            .args(["check", "--transports"])
            .arg(&self.scene.transports)
            .args(["--database", &url])
            .env("PGPASSFILE", &self.passfile)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(!told.contains("hunter2"), "{told}");
        match output.status.success() {
            true => Ok(told),
            false => Err(told),
        }
    }
}

#[test]
fn certificates_are_verified_as_sslmode_says() {
    let server = Secured::start();
    let root = format!("sslrootcert={}", server.authority.display());
    for (host, mode, expected) in [
        ("localhost", "sslmode=disable".to_owned(), false),
        ("localhost", "sslmode=prefer".to_owned(), true),
        ("127.0.0.1", format!("sslmode=verify-ca&{root}"), true),
        ("127.0.0.1", format!("sslmode=verify-full&{root}"), false),
        ("localhost", format!("sslmode=verify-full&{root}"), true),
        (
            "localhost",
            format!("channel_binding=require&sslmode=verify-full&{root}"),
            true,
        ),
        ("localhost", "sslrootcert=system".to_owned(), false),
    ] {
        let told = server.check(host, &mode);
        assert_eq!(told.is_ok(), expected, "{host} {mode}: {told:?}");
    }
    let told = server.check("127.0.0.1", &format!("sslmode=verify-full&{root}"));
    let told = told.unwrap_err();
    assert!(told.contains("subject alternative names"), "{told}");
    // A socket has no TLS, and needs no certificate.
    let socket = server.scene.cluster.socket().display();
    let told = server.check("", &format!("host={socket}&sslmode=verify-full"));
    assert!(told.is_ok(), "{told:?}");
    // The password file is ignored.
    std::fs::set_permissions(&server.passfile, std::fs::Permissions::from_mode(0o644)).unwrap();
    let told = server.check("localhost", "sslmode=require").unwrap_err();
    assert!(told.contains("others than its owner may read it"), "{told}");
}

#[test]
fn prefer_goes_on_without_tls_where_tls_does_not_work() {
    let server = Secured::start();
    let require = |wrong: &str| {
        let told = server.check("localhost", "sslmode=require").err();
        told.is_some_and(|told| told.contains(wrong)).then_some(())
    };
    server.run("sed -i 's/^hostssl/hostnossl/' pg_hba.conf");
    server.scene.cluster.reload();
    eventually("TLS to be refused", || require("no pg_hba.conf entry"));
    assert!(server.check("localhost", "").is_ok());
    server.run(
        "sed -i 's/^hostnossl/host/' pg_hba.conf
         openssl x509 -req -in server.csr $ca -days 2 -out server.crt
         openssl x509 -in server.crt -noout -text | grep 'Version: 1 '",
    );
    server.scene.cluster.reload();
    eventually("the certificate of version 1", || require("version 3"));
    assert!(server.check("localhost", "").is_ok());
}
