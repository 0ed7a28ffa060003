//! Requests that no page of ours makes, and what every answer has.

use super::scene::{PASSWORD, Scene, encoded, words};
use crate::receive::http;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

#[test]
fn only_known_hosts_are_answered() {
    let scene = Scene::start();
    let server = scene.serve();
    let port = server.address.port();
    let ask = |path: &str, hosts: &[&str]| {
        let hosts: String = hosts.iter().map(|host| format!("Host: {host}\n")).collect();
        server
            .exchange(&format!("GET {path} HTTP/1.1\n{hosts}"), "")
            .status
    };
    for name in ["127.0.0.1", "localhost", "LocalHost", "[::1]"] {
        assert_eq!(
            ask("/app/login", &[&format!("{name}:{port}")]),
            200,
            "{name}"
        );
    }
    let own = format!("localhost:{port}");
    for other in [
        "evil.example",
        &format!("evil.example:{port}"),
        "localhost",
        "127.0.0.1",
        &format!("127.0.0.2:{port}"),
        &format!("localhost.:{port}"),
        &format!("localhost:{port}@evil.example"),
        "",
    ] {
        for path in [
            "/",
            "/app/login",
            "/app/messages",
            "/-/x",
            "/absent",
            "/-/health/",
            "//-/health",
        ] {
            assert_eq!(ask(path, &[other]), 421, "{other} {path}");
        }
        // What watches the program reaches it by its address.
        assert_eq!(ask("/-/health", &[other]), 200, "{other}");
    }
    assert_eq!(ask("/app/login", &[]), 400);
    assert_eq!(ask("/app/login", &[&own, &own]), 400);
    assert_eq!(ask("/app/login", &[&own, "evil.example"]), 400);
    assert_eq!(ask("/-/health", &[]), 200);
    // The host of the first line is not the one that is checked.
    let absolute = format!("GET http://localhost:{port}/app/login HTTP/1.1\nHost: evil.example\n");
    assert_eq!(server.exchange(&absolute, "").status, 421);
}

#[test]
fn forms_come_from_own_pages_only() {
    let mut scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("admin");
    let page = browser.page("delivery");
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
    let token = rest.split('"').next().unwrap();
    let own = format!("Origin: http://{}", server.address);
    let local = format!("Origin: http://localhost:{}", server.address.port());
    let https = format!("Origin: https://{}", server.address);
    let post = |headers: &[&str], csrf: &str| {
        let all: Vec<&str> = [FORM].iter().chain(headers).copied().collect();
        let body = encoded(&[("csrf", csrf), ("back", "delivery")]);
        browser
            .send("POST", "/app/delivery/pause", &all, &body)
            .status
    };
    for headers in [
        &["Origin: http://evil.example"][..],
        &["Origin: null"],
        &[&local],
        &[&https],
        &[],
        &[&own, &own],
        &[&own, "Origin: http://evil.example"],
        &[&own, "Sec-Fetch-Site: cross-site"],
        &[&own, "Sec-Fetch-Site: same-site"],
        &[&own, "Sec-Fetch-Site: none"],
        &[
            &own,
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: cross-site",
        ],
        &["Sec-Fetch-Site: same-origin"],
    ] {
        assert_eq!(post(headers, token), 403, "{headers:?}");
    }
    let other = server.of("admin");
    let foreign = other.page("delivery");
    let (_, rest) = foreign.split_once("name=\"csrf\" value=\"").unwrap();
    let foreign = rest.split('"').next().unwrap();
    for csrf in ["", "x", &token[1..], &format!("{token}x"), foreign] {
        assert_eq!(post(&[&own], csrf), 403, "{csrf}");
    }
    // The log-in and the log-out, too.
    let stranger = server.browser("app");
    let fields = encoded(&[("role", "support"), ("password", PASSWORD)]);
    let headers = [FORM, "Origin: http://evil.example"];
    assert_eq!(
        stranger
            .send("POST", "/app/login", &headers, &fields)
            .status,
        403
    );
    assert_eq!(
        browser
            .send("POST", "/app/logout", &[FORM, &own], "csrf=x")
            .status,
        403
    );
    assert_eq!(scene.number("SELECT count(*) FROM pauses"), 0);
    assert_eq!(post(&[&own, "Sec-Fetch-Site: same-origin"], token), 303);
    assert_eq!(scene.number("SELECT count(*) FROM pauses"), 1);
    assert_eq!(post(&[&own], token), 303);
}

const PAGES: [&str; 13] = [
    "",
    "messages",
    "messages.csv",
    "messages/1",
    "messages/1/html",
    "failures",
    "delivery",
    "templates",
    "templates/activation",
    "suppressions",
    "suppressions.csv",
    "log",
    "log.csv",
];
const ACTS: [&str; 12] = [
    "logout",
    "messages/1/retry",
    "messages/1/cancel",
    "messages/1/reschedule",
    "messages/1/send-again",
    "delivery/pause",
    "delivery/resume",
    "delivery/wake",
    "links/request",
    "links/end",
    "suppressions/suppress",
    "suppressions/unsuppress",
];

#[test]
fn each_path_has_its_methods() {
    let mut scene = Scene::start();
    let sent = "SELECT mailroom_send('a@example.com', 'Hello', 'Text')";
    scene.client.batch_execute(sent).unwrap();
    let server = scene.serve();
    let browser = server.of("admin");
    for page in PAGES {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let answer = browser.send(method, &format!("/app/{page}"), &[], "");
            let allowed = answer.header("allow");
            assert_eq!(
                (answer.status, allowed),
                (405, Some("GET, HEAD")),
                "{method} {page}"
            );
        }
        let (got, head) = (
            browser.get(page),
            browser.send("HEAD", &format!("/app/{page}"), &[], ""),
        );
        assert_eq!((head.status, &*head.body), (got.status, ""), "{page}");
        assert_eq!(
            head.header("content-type"),
            got.header("content-type"),
            "{page}"
        );
    }
    for act in ACTS {
        for method in ["GET", "HEAD", "PUT"] {
            let answer = browser.send(method, &format!("/app/{act}"), &[], "");
            let allowed = answer.header("allow");
            assert_eq!(
                (answer.status, allowed),
                (405, Some("POST")),
                "{method} {act}"
            );
        }
    }
    for both in ["login", "failures/retry"] {
        let answer = browser.send("PUT", &format!("/app/{both}"), &[], "");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("GET, HEAD, POST"))
        );
    }
    assert_eq!(scene.number("SELECT count(*) FROM operator_actions"), 0);
    for path in [
        "/app",
        "/absent/",
        "/absent/messages",
        "/app/messages/",
        "/app/messages/x",
        "/app/messages/-1",
        "/app/messages/1/2",
        "/app//messages",
        "/app/../app/",
        "/app/%2e%2e/",
        "/App/",
        "/-/",
        "/-/health/x",
        "/-/x/page.css",
        "/app/-/health",
        "/favicon.ico",
        "/robots.txt",
        "/app/templates/",
        "/app/templates/%00",
    ] {
        let answer = browser.send("GET", path, &[], "");
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(
            browser.send("POST", path, &[], "").status,
            if path.starts_with("/-/health") {
                404
            } else {
                answer.status
            },
            "{path}"
        );
    }
    for id in ["99", "9223372036854775807"] {
        let answer = browser.get(&format!("messages/{id}"));
        assert_eq!(answer.status, 404);
        assert!(words(&answer.body).contains("There is no message"));
    }
    assert_eq!(browser.get("messages/9223372036854775808").status, 404);
    assert_eq!(browser.get("templates/absent").status, 404);
    assert_eq!(
        browser.send("GET", "/", &[], "").header("location"),
        Some("/app/")
    );
}

#[test]
fn answers_have_what_keeps_a_browser_from_harm() {
    let scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("admin");
    let stranger = server.browser("app");
    let mut all: Vec<_> = PAGES
        .iter()
        .map(|page| (*page, browser.get(page)))
        .collect();
    all.push(("login", stranger.get("login")));
    all.push(("absent", browser.get("absent")));
    all.push(("to log in", stranger.get("messages")));
    all.push(("refused", stranger.log_in("support", "hunter3")));
    for (page, answer) in &all {
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{page}");
        }
        let kind = answer.header("content-type").unwrap();
        let policy = answer.header("content-security-policy").unwrap_or_default();
        if page.ends_with("/html") {
            assert!(
                policy.ends_with("frame-ancestors 'self'; sandbox"),
                "{policy}"
            );
        } else if kind.starts_with("text/html") {
            assert!(
                policy.starts_with("default-src 'none'; script-src 'self';"),
                "{page}: {policy}"
            );
            assert!(
                policy.ends_with("frame-ancestors 'none'"),
                "{page}: {policy}"
            );
            for inline in [
                "<style",
                " style=",
                "<script>",
                " onclick=",
                "javascript:",
                "http://",
                "https://",
            ] {
                let body = answer.body.replace("http://www.w3.org/", "");
                assert!(!body.contains(inline), "{page}: {inline}");
            }
        }
    }
    // What does not change is kept; it is the same for all.
    let page = browser.page("messages");
    let assets: Vec<&str> = page
        .split('"')
        .filter(|part| part.starts_with("/-/"))
        .collect();
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        let answer = stranger.send("GET", asset, &[], "");
        assert_eq!(answer.status, 200, "{asset}");
        let kept = answer.header("cache-control").unwrap();
        assert!(kept.contains("immutable"), "{asset}: {kept}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn cookies_are_of_one_database_and_out_of_reach() {
    let scene = Scene::start();
    drop(scene.cluster.create_database("other"));
    let urls = [scene.url("app"), scene.url("other")];
    let server = scene.serve_at(&urls, &[]);
    let browser = server.browser("app");
    let answer = browser.post("login", &[("role", "support"), ("password", PASSWORD)]);
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    let (name, rest) = cookie.split_once('=').unwrap();
    assert_eq!(name, format!("mailroom-{}", server.address.port()));
    let (value, attributes) = rest.split_once(';').unwrap();
    assert_eq!(attributes, " Path=/app/; HttpOnly; SameSite=Lax");
    assert!(value.len() >= 43, "{value}");
    // Also where a browser sends it, it is no session of another database.
    let sent = format!("Cookie: {name}={value}");
    assert_eq!(
        server
            .browser("app")
            .send("GET", "/app/messages", &[&sent], "")
            .status,
        200
    );
    let answer = server
        .browser("other")
        .send("GET", "/other/messages", &[&sent], "");
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/other/login?next=messages"))
    );
    assert!(!server.program.log().contains(value));
}

#[test]
fn a_form_that_is_too_large_is_refused() {
    let scene = Scene::start();
    let server = scene.serve();
    let large = format!("role={}", "x".repeat(64 * 1024));
    let browser = server.browser("app");
    let origin = format!("Origin: http://{}", server.address);
    let answer = browser.send("POST", "/app/login", &[FORM, &origin], &large);
    assert_eq!(answer.status, 413);
    let odd = http::exchange(server.address, b"nonsense\r\n\r\n");
    assert_eq!(odd.status, 400);
    let browser = server.of("support");
    for odd in [
        "messages?before=x&state=%FF&q=%00",
        "messages?%",
        "failures?since=1%20century",
        "log?before=-1",
        "templates/%FF",
    ] {
        assert!([200, 404].contains(&browser.get(odd).status), "{odd}");
    }
    assert_eq!(
        browser
            .post(
                "suppressions/suppress",
                &[("address", "a\0b"), ("until", "never")]
            )
            .status,
        303
    );
}
