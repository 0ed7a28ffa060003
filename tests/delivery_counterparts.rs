//! Delivery by webhook, against WireMock and the verifier of standardwebhooks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod counterparts;

use serde_json::json;

#[test]
fn smoke() {
    use counterparts::*;
    let ca = tls::Authority::create();
    let w = wiremock::WireMock::start_tls(&ca.keystore, tls::PASSWORD);
    let path = w.path();
    w.answer(&path, json!({"status": 204}));
    assert_eq!(http::call(w.port, "POST", &path, Some(&json!({}))).0, 204);
    println!("{:?} {:?}", w.received(&path), w.https_port);
    let out = std::process::Command::new("curl").arg("--cacert").arg(&ca.certificate).args(["-sS", "-i", "-d", "x"]).arg(format!("https://localhost:{}{path}", w.https_port.unwrap())).output().unwrap();
    println!("{}", String::from_utf8_lossy(&out.stdout));
    println!("{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(w.count(&path), 2);
    println!("{:?}", judge::webhook_verifier("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", &w.received(&path)));
    let m = servers::Moto::start();
    m.verify_identity("a@example.com");
    println!("{:?}", http::call_with(m.port, "POST", "/v2/email/outbound-emails", "Authorization: AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/ses/aws4_request, SignedHeaders=host, Signature=any\r\n", Some(&json!({"FromEmailAddress":"b@example.com","Destination":{"ToAddresses":["x@example.com"]},"Content":{"Simple":{"Subject":{"Data":"s"},"Body":{"Text":{"Data":"T"}}}}}))));
    println!("{:?}", http::call_with(m.port, "POST", "/v2/email/outbound-emails", "Authorization: AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/ses/aws4_request, SignedHeaders=host, Signature=any\r\n", Some(&json!({"FromEmailAddress":"a@example.com","Destination":{"ToAddresses":["x@example.com"]},"Content":{"Simple":{"Subject":{"Data":"s"},"Body":{"Text":{"Data":"T"}}}}}))));
    println!("{:?}", m.mails());
    let s = servers::SesLocal::start();
    println!("{:?}", s.mails());
    let p = servers::Prism::start("resend.yaml");
    println!("{:?}", http::call(p.port, "POST", "/emails", Some(&json!({"from": "a@example.com"}))));
    println!("{:?}", p.complaints());
    println!("{}", p.output().lines().filter(|l| !l.contains("info")).collect::<Vec<_>>().join("\n"));
}
