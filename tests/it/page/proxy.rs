//! Debian's nginx in front of the program, with a path before all others.

use super::scene::{PASSWORD, Scene, Server, words};
use crate::cluster::eventually;
use crate::process::{Process, free_port};

const HOST: &str = "ops.example.com";

/// Serves the page of a program below `/mail/`, as a proxy does that speaks TLS with browsers.
fn nginx(scene: &Scene, server: &Server) -> (Process, std::net::SocketAddr) {
    let port = free_port();
    let home = scene.cluster.scratch();
    let text = format!(
        "daemon off;\nmaster_process off;\nerror_log {home}/nginx.log;\npid {home}/nginx.pid;\nevents {{ }}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {home}/body;\nproxy_temp_path {home}/proxy;\nfastcgi_temp_path {home}/fastcgi;\n\
         uwsgi_temp_path {home}/uwsgi;\nscgi_temp_path {home}/scgi;\n\
         server {{\nlisten 127.0.0.1:{port};\nlocation /mail/ {{\nproxy_pass http://{address};\nproxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}}\n}}\n}}\n",
        home = home.display(),
        address = server.address,
    );
    let file = home.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new("/usr/sbin/nginx");
    command
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(home.join("nginx.log"));
    let process = Process::start(&command);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    eventually("nginx", || std::net::TcpStream::connect(address).ok());
    (process, address)
}

#[test]
fn behind_nginx_the_page_is_below_its_path() {
    let mut scene = Scene::start();
    let sent = "SELECT mailroom_send('a@example.com', 'Hello', 'Text')";
    scene.client.batch_execute(sent).unwrap();
    let mut server = scene.serve_at(
        &[scene.url("app")],
        &["--url", "https://ops.example.com/mail"],
    );
    let (_nginx, outside) = nginx(&scene, &server);
    let inside = std::mem::replace(&mut server.address, outside);
    let mut browser = server.browser("app");
    browser.base = "/mail/app/".to_owned();
    browser.host = HOST.to_owned();
    browser.scheme = "https";
    let first = browser.get("messages");
    assert_eq!(
        first.header("location"),
        Some("/mail/app/login?next=messages")
    );
    let answer = browser.post(
        "login",
        &[
            ("role", "support"),
            ("password", PASSWORD),
            ("next", "messages"),
        ],
    );
    assert_eq!(
        answer.header("location"),
        Some("/mail/app/messages"),
        "{}",
        words(&answer.body)
    );
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Secure-mailroom="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/mail/app/; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
    let page = browser.page("messages");
    let paths = page.split('"').filter(|part| part.starts_with('/'));
    for path in paths {
        assert!(path.starts_with("/mail/"), "{path}");
        if path.starts_with("/mail/-/") {
            assert_eq!(browser.send("GET", path, &[], "").status, 200, "{path}");
        }
    }
    assert_eq!(
        browser.act("messages/1/cancel", &[("back", "messages/1")]),
        "Cancelled."
    );
    assert_eq!(
        browser.send("GET", "/mail/", &[], "").header("location"),
        Some("/mail/app/")
    );
    // The address is that of the browser, to which nginx adds its own view.
    let log = server.program.log();
    assert!(
        log.contains("role \"support\" logged in from 127.0.0.1"),
        "{log}"
    );
    let foreign = ["Origin: https://evil.example"];
    assert_eq!(
        browser
            .send("POST", "/mail/app/logout", &foreign, "")
            .status,
        403
    );
    // Not outside of the path, and not for others' hosts.
    server.address = inside;
    let mut browser = server.browser("app");
    browser.host = HOST.to_owned();
    for path in ["/app/login", "/mailapp/login", "/", "/mail"] {
        assert_eq!(browser.send("GET", path, &[], "").status, 404, "{path}");
    }
    assert_eq!(browser.send("GET", "/mail/app/login", &[], "").status, 200);
    browser.host = "evil.example".to_owned();
    assert_eq!(browser.send("GET", "/mail/app/login", &[], "").status, 421);
}
