//! Endpoints and relays without TLS.

use super::*;
use crate::transport::network_policy::Exposed;

fn webhook(endpoint: &str) -> String {
    format!(
        "[transports.a]\nprovider = \"webhook\"\nsecret = \"{WHSEC}\"\nallowed_networks = [\"127.0.0.0/8\", \"::1\", \"172.16.0.0/12\", \"8.8.8.8\"]\nendpoint = \"{endpoint}\""
    )
}

fn keyed(provider: &str, endpoint: &str) -> String {
    let keys = match provider {
        "ses" => "region = \"r\"\naccess_key_id = \"i\"\nsecret_access_key = \"s\"",
        _ => "api_key = \"k\"",
    };
    format!(
        "[transports.a]\nprovider = \"{provider}\"\nendpoint = \"{endpoint}\"\nfrom = \"a@example.com\"\nallowed_networks = [\"0.0.0.0/0\"]\n{keys}"
    )
}

fn relay(host: &str, lines: &str) -> String {
    format!(
        "[transports.a]\nprovider = \"smtp\"\nfrom = \"a@example.com\"\ntls = \"none\"\nhost = \"{host}\"\nallowed_networks = [\"172.16.0.0/12\", \"127.0.0.1\", \"8.8.8.8\"]\n{lines}"
    )
}

#[test]
fn a_receiver_on_a_listed_network_needs_no_tls() {
    for host in [
        "127.0.0.1",
        "[::1]",
        "172.18.0.2:8000",
        "app:8000",
        "my_app",
    ] {
        let all = transports(&webhook(&format!("http://{host}/mail")));
        let options = http(&all[0]).1;
        assert_eq!(options.exposed, Exposed::Mail);
        let judge = |address: &str| {
            let address = address.parse().unwrap();
            options.networks.judge(address, options.exposed).is_ok()
        };
        assert!(judge("127.0.0.1") && judge("::1") && judge("172.18.0.2"));
        assert!(!judge("10.0.0.1") && !judge("8.8.8.8"));
    }
    let (line, problem) = problem_of(&webhook("HTTP://8.8.8.8/mail"));
    assert_eq!(line, Some(5));
    assert!(problem.ends_with(
        "endpoint is an http URL, and mail is sent without TLS to private addresses only"
    ));
}

#[test]
fn a_key_is_sent_in_clear_to_this_machine_only() {
    for provider in ["ses", "sendgrid", "postmark", "resend", "mailgun"] {
        for host in ["127.0.0.1:9", "127.1.2.3", "stub:8025"] {
            let all = transports(&keyed(provider, &format!("http://{host}")));
            assert_eq!(http(&all[0]).1.exposed, Exposed::Credentials);
        }
        for host in ["172.18.0.2", "8.8.8.8", "[fd00::2]:80"] {
            let (line, problem) = problem_of(&keyed(provider, &format!("http://{host}")));
            assert_eq!(line, Some(3));
            assert!(problem.ends_with(
                "endpoint is an http URL, and credentials are sent without TLS to loopback addresses only"
            ));
        }
        transports(&keyed(provider, "https://172.18.0.2"));
    }
}

#[test]
fn so_is_a_password_of_a_relay() {
    let login = "username = \"u\"\npassword = \"p\"";
    let token = "username = \"u\"\ntoken_file = \"t\"";
    for host in ["127.0.0.1", "localhost", "mailpit"] {
        for lines in ["", login, token] {
            transports(&relay(host, lines));
        }
    }
    transports(&relay("172.18.0.2", ""));
    for lines in [login, token] {
        for host in ["172.18.0.2", "8.8.8.8", "[fd00::2]"] {
            let (line, problem) = problem_of(&relay(host, lines));
            assert_eq!(line, Some(4));
            assert!(problem.ends_with(
                "tls is \"none\", and credentials are sent without TLS to loopback addresses only"
            ));
        }
    }
    let (_, problem) = problem_of(&relay("8.8.8.8", ""));
    assert!(
        problem
            .ends_with("tls is \"none\", and mail is sent without TLS to private addresses only")
    );
}

fn problem_of(content: &str) -> (Option<usize>, String) {
    let error = problem(content);
    assert!(!error.hint().is_empty());
    (error.line, error.to_string())
}
