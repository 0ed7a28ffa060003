//! The README is short, and its sample output is what the demonstration shows, whose SMTP server runs in the Python
//! that `MAILROOM_PYTHON` names. Its commands and queries are executed with those of the book, see `book_blocks`.
//!
//! needs: aiosmtpd

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::book_commands::page::log_in;
use crate::cluster::{eventually, signal};
use crate::counterparts::http;
use crate::demo::Demo;

#[test]
fn the_readme_is_short() {
    let lines = crate::book::read("README.md").lines().count();
    assert!(lines <= 150, "it has {lines} lines");
}

/// Whether a text contains the parts of this picture, which ellipses separate, in order; returns the first missing one.
fn shows(text: &str, picture: &str) -> Result<(), String> {
    let mut rest = text;
    for part in picture.split('…') {
        let Some((_, after)) = rest.split_once(part) else {
            return Err(part.to_owned());
        };
        rest = after;
    }
    Ok(())
}

#[test]
fn the_picture_is_what_the_demonstration_shows() {
    let picture = crate::book::block("README.md", "console");
    let mut shown = Vec::new();
    Demo::start(&mut shown).run();
    let shown = String::from_utf8(shown).unwrap();
    if let Err(part) = shows(&shown, &picture) {
        panic!("in its place there is no\n{part}\nin\n{shown}");
    }

    assert_eq!(shows("a: 1\nb\nc\n", "a: …\n…\nc\n"), Ok(()));
    assert_eq!(shows("a\nb\n", "b\n…a\n"), Err("a\n".to_owned()));
    assert_eq!(shows("a\nb\n", "a\nc\n"), Err("a\nc\n".to_owned()));
}

/// The link in the latest mail to an address, by the program of the guide.
fn link_to(address: &str, mailbox: u16) -> String {
    let program = crate::book::block("docs/guides/testing.md", "python");
    let program = program.replace(":1080/", &format!(":{mailbox}/"));
    let script =
        format!("import json, re, urllib.request\n{program}\nprint(link_to('{address}'), end='')");
    let output = crate::mailbox::python()
        .args(["-c", &script])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

// needs: counterparts
#[test]
fn the_demonstration_stays_until_it_is_ended() {
    let program = std::env::var("MAILROOM_DEMO").unwrap_or_else(|_| {
        panic!("MAILROOM_DEMO is not set: run the tests with `make test`, which builds it")
    });
    // It ends with this program if the test fails.
    let mut stay = Command::new(program)
        .arg("stay")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(stay.stdout.take().unwrap()).lines();
    let mut value = |name: &str| {
        let mut rest = lines.by_ref().map(Result::unwrap);
        let found = rest.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        found.unwrap_or_else(|| panic!("it ended before it printed {name}"))
    };
    let port = |url: &str| -> u16 {
        let (_, rest) = url.split_once("127.0.0.1:").unwrap();
        rest.split_once('/').unwrap().0.parse().unwrap()
    };
    let (mailbox, page) = (port(&value("The mailbox:")), port(&value("The page:")));
    let (role, password) = (value("Role:"), value("Password:"));

    let (status, _, shown) = http::exchange(mailbox, "GET", "/", "Accept: text/html\r\n", "");
    assert_eq!((status, shown.contains("<html")), (200, true), "{shown}");
    let link = link_to("ada@example.com", mailbox);
    let (_, query) = link.rsplit_once("/activate?").unwrap();
    let application = port(&link);
    let path = format!("/activate?{query}");
    let (status, form) = http::call(application, "GET", &path, None);
    assert_eq!(status, 200, "{form}");
    let token = query.strip_prefix("token=").unwrap();
    assert!(form.contains(token), "{form}");
    let (status, _, told) = http::exchange(application, "POST", "/activate", "", query);
    assert_eq!((status, told.contains(">ok<")), (200, true), "{told}");

    let host = format!("127.0.0.1:{page}");
    let form = format!("role={role}&password={password}");
    let (status, cookie) = log_in(page, &host, "/app/login", &form);
    assert_eq!(status, 303);
    let headers = format!("Host: {host}\r\nCookie: {}\r\n", cookie.unwrap());
    let (_, _, messages) = http::exchange(page, "GET", "/app/messages", &headers, "");
    for expected in ["Your invoice 1043", "refused@example.net", "suppressed"] {
        assert!(messages.contains(expected), "{expected}: {messages}");
    }

    let pid = stay.id();
    signal("TERM", pid.cast_signed());
    stay.wait().unwrap();
    for port in [mailbox, page] {
        eventually("the servers to end", || {
            TcpStream::connect(("127.0.0.1", port)).err()
        });
    }
    let ours = format!("mailroom-{pid}-");
    eventually("its files to go", || {
        let mut files = std::fs::read_dir(std::env::temp_dir()).unwrap();
        let left = files.any(|file| {
            let name = file.unwrap().file_name();
            name.to_string_lossy().starts_with(&ours)
        });
        (!left).then_some(())
    });
}
