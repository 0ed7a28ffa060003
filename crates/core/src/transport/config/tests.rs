//! The transports file as a whole.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::transport::providers::fixture;
use crate::transport::rate::Unit;

const WHSEC: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A transport of each HTTP provider.
const RECIPES: &str = r#"
[transports.hook]
provider = "webhook"
endpoint = "https://app.example.com/mail"
secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

[transports.ses]
provider = "ses"
region = "eu-west-1"
access_key_id = "AKIAHUNTER2"
secret_access_key = "hunter2-ses"
from = "Shop <shop@example.com>"
rate = "14 recipients/s"

[transports.sendgrid]
provider = "sendgrid"
api_key = "SG.hunter2"
from = "Shop <shop@example.com>"

[transports.transactional]
provider = "postmark"
api_key = "hunter2-postmark"
message_stream = "outbound"
from = "Shop <shop@example.com>"
allow_from = ["*@Example.com"]
concurrency = 8
timeout = "20 s"
connect_timeout = "250ms"
max_ambiguous = 0
databases = ["shop"]

[transports.resend]
provider = "resend"
api_key = "re_hunter2"
from = "Shop <shop@example.com>"
rate = "5 requests/s"

[transports.mailgun]
provider = "mailgun"
api_key = "hunter2-mailgun"
domain = "mg.example.com"
from = "Shop <shop@example.com>"
"#;

fn transports(content: &str) -> Vec<TransportConfig> {
    parse(content, Path::new("/nowhere")).unwrap_or_else(|error| panic!("{error}"))
}

fn problem(content: &str) -> ConfigError {
    let result = parse(content, Path::new("/nowhere"));
    result
        .err()
        .unwrap_or_else(|| panic!("accepted: {content}"))
}

/// What speaks HTTP.
fn http(transport: &TransportConfig) -> (&dyn Provider, &ClientOptions) {
    match &transport.method {
        Method::Http { provider, options } => (&**provider, options),
        Method::Single(_) => panic!("{} does not speak HTTP", transport.name),
    }
}

/// A transport of Resend with these lines besides.
fn resend(lines: &str) -> String {
    format!(
        "[transports.a]\nprovider = \"resend\"\nfrom = \"Shop <shop@example.com>\"\napi_key = \"re_1\"\n{lines}\n"
    )
}

/// A directory of its own, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("mailroom-config-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_recipes_are_complete_and_in_their_order() {
    let all = transports(RECIPES);
    let names: Vec<&str> = all.iter().map(|transport| &*transport.name).collect();
    assert_eq!(
        names,
        [
            "hook",
            "ses",
            "sendgrid",
            "transactional",
            "resend",
            "mailgun"
        ]
    );
    for transport in &all {
        let (provider, _) = http(transport);
        let request = provider
            .request(&[&fixture::message()], UNIX_EPOCH)
            .unwrap();
        assert_eq!(request.uri.scheme_str(), Some("https"));
        let body = String::from_utf8_lossy(&request.body).to_lowercase();
        assert!(!body.contains("hunter2"), "{}", transport.name);
        assert!(
            !transport
                .delivery
                .account
                .to_lowercase()
                .contains("hunter2")
        );
    }
    let hook = &all[0];
    assert_eq!(http(hook).1.timeout, method::WEBHOOK_TIMEOUT);
    assert!(hook.delivery.allow_from.is_empty() && hook.serves("any"));
    let ses = &all[1];
    assert_eq!(ses.delivery.rate.unwrap().unit(), Unit::Recipients);
    assert_eq!(http(ses).1.timeout, method::TIMEOUT);
    assert_eq!(ses.delivery.concurrency, 64);
    assert_eq!(ses.delivery.max_ambiguous, 1);
    assert_eq!(ses.delivery.allow_from, ["shop@example.com"]);
    let postmark = &all[3];
    assert_eq!(postmark.provider_name, "postmark");
    assert_eq!(postmark.delivery.concurrency, 8);
    assert_eq!(postmark.delivery.max_ambiguous, 0);
    assert_eq!(http(postmark).1.timeout, Duration::from_secs(20));
    assert_eq!(http(postmark).1.connect_timeout, Duration::from_millis(250));
    assert_eq!(postmark.delivery.allow_from, ["*@example.com"]);
    assert!(postmark.serves("shop") && !postmark.serves("other"));
}

#[test]
fn another_account_or_endpoint_is_another_address() {
    let address = |content: &str| transports(content)[0].delivery.account.clone();
    let one = address(&resend(""));
    assert_eq!(one, address(&resend("concurrency = 1")));
    assert_ne!(one, address(&resend("endpoint = \"https://a.example\"")));
    assert_ne!(one, address(&resend("").replace("re_1", "re_2")));
    assert_ne!(one, address(&resend("").replace("shop@", "news@")));
    assert_ne!(
        one,
        address(&resend("").replace("transports.a", "transports.b"))
    );
}

#[test]
fn errors_have_line_problem_and_remedy() {
    for (line, expected, remedy) in [
        (
            "concurency = 1",
            "this key is unknown",
            "Perhaps concurrency was meant.",
        ),
        (
            "region = \"x\"",
            "region is no key of provider resend",
            "Keys of resend: ",
        ),
        (
            "secret_file = \"x\"",
            "secret is no key of provider resend",
            "Keys of resend: ",
        ),
        (
            "concurrency = 0",
            "concurrency is not a whole number from 1 to 1000",
            "Write",
        ),
        (
            "concurrency = \"8\"",
            "concurrency is not a whole number from 1 to 1000",
            "Write",
        ),
        ("timeout = 60", "timeout is not a string", "\"60 s\""),
        (
            "timeout = \"60\"",
            "timeout is not a time with a unit, within its bounds",
            "\"60 s\"",
        ),
        (
            "timeout = \"1 d\"",
            "timeout is not a time with a unit, within its bounds",
            "10 min",
        ),
        (
            "connect_timeout = \"\"",
            "connect_timeout is empty",
            "\"5 s\"",
        ),
        (
            "rate = \"14\"",
            "rate is not a number and a unit",
            "14 recipients/s",
        ),
        (
            "max_ambiguous = 101",
            "max_ambiguous is not a whole number from 0 to 100",
            "0 to 100",
        ),
        ("databases = []", "databases is empty", "array"),
        ("databases = \"shop\"", "databases is not an array", "array"),
        (
            "databases = [\"shop\", 7]",
            "item 2 of databases is not the name of a database",
            "array",
        ),
        (
            "allow_from = [\"example.com\"]",
            "item 1 of allow_from is not an address or \"*@\" and a domain",
            "*@example.com",
        ),
        (
            "allowed_networks = [\"10.0.0.0/8, ::1\"]",
            "item 1 of allowed_networks is not a network",
            "10.0.0.0/8",
        ),
        (
            "ca_file = \"none.pem\"",
            "ca_file names a file that cannot be read: No such file or directory (os error 2)",
            "PEM",
        ),
        (
            "endpoint = \"ftp://a\"",
            "endpoint must begin with https://",
            "https URL",
        ),
        (
            "api_key_file = \"x\"",
            "api_key_file is given besides api_key",
            "Keep one",
        ),
    ] {
        let error = problem(&resend(line));
        assert_eq!(
            error.to_string(),
            format!("transports file, line 5: transport \"a\": {expected}"),
        );
        assert!(error.hint().contains(remedy), "{}", error.hint());
    }
    for (content, expected) in [
        (
            "a = 1",
            "line 1: this key is unknown outside of a transport",
        ),
        ("\ntransports = 1", "line 2: transports is not a table"),
        ("[[transports]]\n", "line 1: transports is not a table"),
        (
            "[transports]\na = 1",
            "line 2: transport \"a\" is not a table",
        ),
        (
            "[transports.A]\n",
            "line 1: this is no name for a transport",
        ),
        (
            "\n[transports.a]\n",
            "line 2: transport \"a\": provider is missing",
        ),
        (
            "[transports.a]\nprovider = \"telex\"",
            "line 2: transport \"a\": provider is not one that mailroom knows",
        ),
        (
            "[transports.a]\nprovider = \"webhook\"",
            "line 1: transport \"a\": secret is missing",
        ),
        (
            "[transports.a]\nprovider = \"resend\"\napi_key = \"a\"",
            "line 1: transport \"a\": from is missing",
        ),
        (
            "[transports.a]\nprovider = \"resend\"\nfrom = \"a\"\napi_key = \"a\"",
            "line 3: transport \"a\": from has no @",
        ),
        (
            "[transports.a]\nprovider = \"resend\"\nfrom = \"jörg@a.example\"\napi_key = \"a\"",
            "line 3: transport \"a\": from has letters beyond ASCII before the @, which the provider does not take",
        ),
        (
            "[transports.a]\n[transports.b]\n[transports.a]",
            "line 3: this key or table is there twice",
        ),
        (
            "[transports.a]\nprovider = \"ses\"\nprovider = \"ses\"",
            "line 3: this key or table is there twice",
        ),
        (
            "[transports.a]\nprovider = ses",
            "line 2: this is not TOML: string values must be quoted",
        ),
        (
            "[transports.a\n",
            "line 1: this is not TOML: unclosed table",
        ),
    ] {
        let error = problem(content);
        assert_eq!(error.to_string(), format!("transports file, {expected}"));
        assert!(!error.hint().is_empty());
    }
    assert!(transports("").is_empty());
}

#[test]
fn the_file_is_judged_before_it_is_read() {
    let directory = Directory::new("file");
    directory.write("key", "re_file\n", 0o600);
    let content = resend("").replace("api_key = \"re_1\"", "api_key_file = \"key\"");
    let path = directory.write("transports.toml", &content, 0o640);
    let shown = path.display().to_string();
    let error = load(&path).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("transports file \"{shown}\" is open to others, mode 0640")
    );
    assert!(error.hint().contains("0600"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let transports = load(&path).unwrap_or_else(|error| panic!("{error}"));
    let (provider, _) = http(&transports[0]);
    let request = provider
        .request(&[&fixture::message()], UNIX_EPOCH)
        .unwrap();
    assert_eq!(request.headers["authorization"], "Bearer re_file");
    let path = directory.write("transports.toml", "\n\nx", 0o600);
    assert_eq!(
        load(&path).err().unwrap().to_string(),
        format!("transports file \"{shown}\", line 3: this is not TOML: key with no value")
    );
    std::fs::write(&path, b"\n# \xff").unwrap();
    assert_eq!(
        load(&path).err().unwrap().to_string(),
        format!("transports file \"{shown}\", line 2: this is not UTF-8")
    );
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        load(&path).err().unwrap().to_string(),
        format!("transports file \"{shown}\" does not exist")
    );
}

proptest! {
    #[test]
    fn any_content_is_read_or_has_a_line(lines in prop::collection::vec(
        "(provider|api_key|secret|from|rate|x|\\[transports\\.[ab]) ?[=\\]]? ?(\"[a-z@ 0-9]{0,8}\"|\\[\"a\"\\]|[0-9]|\"|)", 0..6)
    ) {
        let content = lines.join("\n");
        if let Err(error) = parse(&content, Path::new("/nowhere")) {
            prop_assert!((1..=lines.len().max(1) + 1).contains(&error.line.unwrap()));
            prop_assert!(!error.hint().is_empty());
        }
    }
}

mod in_clear;
mod secrets;
mod single;
