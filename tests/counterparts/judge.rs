//! Checks of requests by libraries that receivers use.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::wiremock::Received;

/// Whether the verifier of standardwebhooks accepts each of the requests with this secret.
pub fn webhook_verifier(secret: &str, requests: &[Received]) -> Vec<bool> {
    let requests: Vec<Value> = requests.iter().map(as_json).collect();
    let verdicts = run(
        "verify.py",
        &json!({"secret": secret, "requests": requests}),
    );
    serde_json::from_value::<Vec<bool>>(verdicts).unwrap()
}

/// The `Authorization` that botocore computes for this request, signed at the same time.
pub fn botocore_authorization(
    request: &Received,
    access_key: &str,
    secret_key: &str,
    region: &str,
) -> String {
    let mut request = as_json(request);
    let object = request.as_object_mut().unwrap();
    object.insert("access_key".to_owned(), access_key.into());
    object.insert("secret_key".to_owned(), secret_key.into());
    object.insert("region".to_owned(), region.into());
    let signed = run("sign.py", &request);
    signed.as_str().unwrap().to_owned()
}

fn as_json(request: &Received) -> Value {
    let headers: serde_json::Map<String, Value> = request
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    json!({"url": request.url, "headers": headers, "body": request.body})
}

/// Runs a script of this directory with JSON as input and output.
fn run(script: &str, input: &Value) -> Value {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/counterparts");
    let mut python: Command = super::program("python");
    let mut child = python
        .arg("-B")
        .arg(Path::new(directory).join(script))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{script} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}
