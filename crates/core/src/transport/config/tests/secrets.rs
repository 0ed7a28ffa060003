//! Secrets: nothing that is said shows one, and files of their own may hold them.

use super::*;

/// Stands for a secret in every wrong place.
const SECRET: &str = "hunter2SECRET";

#[test]
fn a_secret_in_a_wrong_place_is_not_shown() {
    let wrong: Vec<String> = [
        // Of another type, and as the value or name of an unknown key.
        "api_key = 1",
        "unknown = \"§\"",
        "§ = \"x\"",
        "\"§\" = 1",
        "unknown = [\"§\"]",
        "unknown.§ = 1",
        "§.unknown = 1",
        "region = \"§\"",
        // Of a known key.
        "endpoint = \"§\"",
        "endpoint = \"https://user:§@a.example\"",
        "from = \"§\"",
        "from = \"<§\"",
        "allow_from = [\"§\"]",
        "allow_from = \"§\"",
        "allow_from = { a = \"§\" }",
        "ca_file = \"§\"",
        "ca_file = [\"§\"]",
        "allowed_networks = [\"§\"]",
        "databases = \"§\"",
        "databases = [[\"§\"]]",
        "concurrency = \"§\"",
        "max_ambiguous = \"§\"",
        "timeout = \"§\"",
        "timeout = [\"§\"]",
        "connect_timeout = \"5 §\"",
        "rate = \"§\"",
        "rate = \"§ recipients/s\"",
        "provider = \"§\"",
        "provider = [\"§\"]",
        "api_key = \"§ §\"",
        "api_key = [\"§\"]",
        "api_key = { value = \"§\" }",
        "api_key_file = \"§\"",
        "api_key_file = [\"§\"]",
        // Bad syntax.
        "api_key = §",
        "api_key = \"§",
        "api_key = '§",
        "api_key = \"§\" §",
        "api_key = \"§\\q\"",
        "api_key \"§\"",
        "api_key = \"\"\"§",
        "§",
        "§==",
        "= \"§\"",
        "api_key = [\"§\"",
        "api_key = \"§\"\napi_key = \"§\"",
        "[transports.§]",
        "[transports.a.§]",
        "[transports.\"§ §\"]",
        "[§]",
        "[§",
    ]
    .into_iter()
    .map(|line| line.replace('§', SECRET))
    .collect();
    for (count, line) in wrong.iter().enumerate() {
        let key = line.split(' ').next().unwrap();
        let rest: String = resend("")
            .lines()
            .filter(|known| key != "api_key_file" || !known.starts_with("api_key"))
            .filter(|known| !known.starts_with(&format!("{key} ")))
            .map(|known| format!("{known}\n"))
            .collect();
        let error = problem(&format!("{rest}{line}\n"));
        let said = format!("{error} {error:?} {}", error.hint());
        assert!(
            !said.to_lowercase().contains("hunter"),
            "{count} {line:?}: {said}"
        );
        assert!(said.contains("line "), "{said}");
    }
}

#[test]
fn secrets_of_a_webhook() {
    let hook = |lines: &str| {
        format!("[transports.a]\nprovider = \"webhook\"\nendpoint = \"https://a.example\"\n{lines}")
    };
    let directory = Directory::new("secrets");
    directory.write("one", &format!("{WHSEC}\n"), 0o600);
    directory.write("two", &format!("{WHSEC}\r\n{WHSEC}\n"), 0o600);
    directory.write("three", &format!("{WHSEC}\n{WHSEC}\n{WHSEC}"), 0o600);
    directory.write("quoted", &format!("\"{WHSEC}\""), 0o600);
    directory.write("empty", "\n", 0o600);
    directory.write("open", WHSEC, 0o644);
    let signatures = |lines: &str| {
        let all = parse(&hook(lines), &directory.0).map_err(|error| error.to_string())?;
        let (provider, _) = http(&all[0]);
        let request = provider.request(&[&fixture::message()], UNIX_EPOCH)?;
        Ok::<_, String>(
            request.headers["webhook-signature"]
                .to_str()
                .unwrap()
                .matches("v1,")
                .count(),
        )
    };
    assert_eq!(signatures(&format!("secret = \"{WHSEC}\"")), Ok(1));
    assert_eq!(
        signatures(&format!("secrets = [\"{WHSEC}\", \"{WHSEC}\"]")),
        Ok(2)
    );
    assert_eq!(signatures("secret_file = \"one\""), Ok(1));
    assert_eq!(signatures("secrets_file = \"two\""), Ok(2));
    let path = directory.0.join("one");
    assert_eq!(
        signatures(&format!("secret_file = \"{}\"", path.display())),
        Ok(1)
    );
    for (lines, expected) in [
        (
            "secrets_file = \"three\"",
            "secrets_file has more than 2 secrets",
        ),
        (
            "secret_file = \"two\"",
            "what is in the file that secret_file names is not printable ASCII without spaces and quotes",
        ),
        (
            "secret_file = \"quoted\"",
            "what is in the file that secret_file names is not printable ASCII without spaces and quotes",
        ),
        (
            "secret_file = \"empty\"",
            "what is in the file that secret_file names is not printable ASCII without spaces and quotes",
        ),
        (
            "secret_file = \"open\"",
            "the file that secret_file names is open to others, mode 0644",
        ),
        (
            "secret_file = \"none\"",
            "the file that secret_file names does not exist",
        ),
        (
            "secrets = [\"hunter2\"]",
            "secret is not whsec_ and 24 to 64 bytes in base64",
        ),
        (
            "secrets_file = \"one\"\nsecret = \"a\"",
            "secrets_file is given besides secret",
        ),
    ] {
        assert_eq!(
            signatures(lines),
            Err(format!(
                "transports file, line 4: transport \"a\": {expected}"
            ))
        );
    }
}

#[test]
fn a_section_is_the_same_until_it_or_one_of_its_files_changes() {
    let directory = Directory::new("state");
    directory.write("key", "re_1", 0o600);
    let from = |others: &str, from: &str| {
        let section = format!(
            "{others}[transports.a]\nprovider = \"resend\"\nfrom = \"{from}\"\napi_key_file = \"key\"\n"
        );
        let mut all = parse(&section, &directory.0).unwrap();
        all.pop().unwrap().state
    };
    let first = from("", "a@example.com");
    let log = "[transports.log]\nprovider = \"log\"\n\n";
    assert!(first == from(log, "a@example.com"));
    assert!(first != from("", "b@example.com"));
    // Replaced, as Kubernetes and editors do.
    let other = directory.write("other", "re_2", 0o600);
    std::fs::rename(other, directory.0.join("key")).unwrap();
    assert!(first != from("", "a@example.com"));
}
