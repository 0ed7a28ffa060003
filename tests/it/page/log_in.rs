//! Logging in with a password that the server asks for, and out.

use std::process::Output;

use super::scene::{MEMBERS, PASSWORD, Scene, Server, free_address, words};
use crate::cluster::{Stop, eventually};
use crate::pooler::Pooler;
use crate::sender_scene::program;

const WRONG: &str = "Role or password is wrong, or the role may not log in from here.";

#[test]
fn a_role_logs_in_and_out() {
    let scene = Scene::start();
    let server = scene.serve();
    let browser = server.browser("app");
    let first = browser.get("messages?state=error");
    assert_eq!(first.status, 303);
    let to = "/app/login?next=messages%3Fstate%3Derror";
    assert_eq!(first.header("location"), Some(to));
    let form = browser.page("login?next=messages%3Fstate%3Derror");
    assert!(form.contains("name=\"next\" value=\"messages?state=error\""));
    for elsewhere in ["//evil.example/", "https://evil.example/", "login"] {
        let fields = [
            ("role", "support"),
            ("password", PASSWORD),
            ("next", elsewhere),
        ];
        let answer = browser.post("login", &fields);
        assert_eq!(answer.header("location"), Some("/app/"), "{elsewhere}");
        assert_eq!(browser.get("").status, 200);
        browser.post("logout", &[]);
    }
    let fields = [
        ("role", "support"),
        ("password", PASSWORD),
        ("next", "messages?state=error"),
    ];
    let answer = browser.post("login", &fields);
    assert_eq!(answer.header("location"), Some("/app/messages?state=error"));
    let page = words(&browser.page("messages?state=error"));
    assert!(page.contains("support (support)"), "{page}");
    // The log-in leads on.
    assert_eq!(browser.get("login").header("location"), Some("/app/"));
    let cookie = browser.cookies.borrow().clone();
    let out = browser.post("logout", &[]);
    assert_eq!(out.header("location"), Some("/app/login"));
    assert!(browser.cookies.borrow().is_empty());
    // Nor does the cookie help that was taken away.
    *browser.cookies.borrow_mut() = cookie;
    assert_eq!(browser.get("").status, 303);
    let log = server.program.log();
    let told = "role \"support\" logged in from 198.51.0.1";
    assert!(log.contains(told), "{log}");
    assert!(log.contains("role \"support\" logged out"), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[test]
fn the_log_in_gives_a_session_of_its_own() {
    let scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("support");
    let cookie =
        |of: &super::scene::Browser<'_>| of.cookies.borrow().values().next().cloned().unwrap();
    let first = cookie(&browser);
    // Another log-in of the browser ends the first one.
    browser.log_in("monitor", PASSWORD);
    let second = cookie(&browser);
    assert_ne!(first, second);
    let name = browser.cookies.borrow().keys().next().cloned().unwrap();
    browser.cookies.borrow_mut().insert(name, first);
    assert_eq!(browser.get("").status, 303);
    for made_up in ["", "x", &second[1..]] {
        let cookie = format!("Cookie: mailroom-{}={made_up}", server.address.port());
        let stranger = server.browser("app");
        assert_eq!(stranger.send("GET", "/app/", &[&cookie], "").status, 303);
    }
}

#[test]
fn what_is_wrong_with_a_log_in_is_said_only_to_who_has_the_password() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute("CREATE ROLE resting NOLOGIN PASSWORD 'hunter2' IN ROLE mailroom_support")
        .unwrap();
    let server = scene.serve();
    let refused = |role, password| server.browser("app").refused(role, password);
    for (role, password) in [
        ("support", "hunter3"),
        ("nobody", PASSWORD),
        ("resting", PASSWORD),
        ("root_of_all", "hunter3"),
        ("stranger", ""),
        ("postgres' --", "x"),
    ] {
        assert_eq!(refused(role, password), WRONG, "{role}");
    }
    let told = refused("stranger", PASSWORD);
    assert!(
        told.contains("\"stranger\" is a member of none of mailroom's roles"),
        "{told}"
    );
    let told = refused("root_of_all", PASSWORD);
    assert!(told.starts_with("Superusers do not log in here."), "{told}");
    let empty = server.browser("app").post("login", &[("role", " ")]);
    assert_eq!(empty.status, 400);
    // Those that may see nothing are told so.
    let told = refused("receiver", PASSWORD);
    assert!(
        told.contains("\"receiver\" sees nothing of this page"),
        "{told}"
    );
    for role in MEMBERS.into_iter().filter(|role| *role != "receiver") {
        drop(server.of(role));
    }
}

#[test]
fn passwords_that_servers_ask_for_in_other_ways_are_good() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'hunter2' IN ROLE mailroom_support; \
             CREATE ROLE clear LOGIN PASSWORD 'hunter2' IN ROLE mailroom_support",
        )
        .unwrap();
    let asking = ["local", "host"].map(|kind| {
        let addresses = if kind == "host" { "127.0.0.1/32" } else { "" };
        format!("{kind} all clear {addresses} password\n{kind} all all {addresses} md5\n")
    });
    let port = scene.listen("127.0.0.1", &asking.concat());
    for url in [
        scene.url_at(port, "app"),
        format!("host=127.0.0.1 port={port} dbname=app sslmode=disable"),
    ] {
        let server = scene.serve_at(&[url], &[]);
        for role in ["old", "clear", "support"] {
            server.of(role);
            assert_eq!(
                server.browser("app").refused(role, "hunter3"),
                WRONG,
                "{role}"
            );
        }
    }
}

/// Ends the connections of a role.
fn cut_off(scene: &mut Scene, role: &str) {
    let ended = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{role}'"
    );
    assert!(scene.number(&ended) > 0);
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'");
    eventually("the connection to end", || {
        (scene.number(&left) == 0).then_some(())
    });
}

#[test]
fn a_role_that_may_no_longer_log_in_is_out_with_its_connection() {
    let mut scene = Scene::start();
    let server = scene.serve();
    for change in ["NOLOGIN", "PASSWORD 'hunter3'", "VALID UNTIL '2020-01-01'"] {
        let browser = server.of("support");
        cut_off(&mut scene, "support");
        // The session has the password, and connects again.
        browser.page("messages");
        scene
            .client
            .batch_execute(&format!("ALTER ROLE support {change}"))
            .unwrap();
        browser.page("messages");
        cut_off(&mut scene, "support");
        let answer = browser.get("messages");
        let to = answer.header("location");
        assert_eq!(
            (answer.status, to),
            (303, Some("/app/login?next=messages")),
            "{change}"
        );
        assert!(browser.cookies.borrow().is_empty());
        let told = browser.send("GET", "/app/messages", &["Mailroom-Refresh: 1"], "");
        assert_eq!(told.status, 401);
        let back = "ALTER ROLE support LOGIN PASSWORD 'hunter2' VALID UNTIL 'infinity'";
        scene.client.batch_execute(back).unwrap();
    }
    server
        .program
        .wait_for("the session of role \"support\" ended", 3);
    // So is one whose rights were taken away, without its connection.
    let browser = server.of("support");
    scene
        .client
        .batch_execute("REVOKE mailroom_support FROM support")
        .unwrap();
    let answer = browser.get("messages");
    assert_eq!(answer.status, 403);
    assert!(words(&answer.body).contains("Your role may not do this."));
    let answer = browser.get("messages");
    assert_eq!(answer.status, 303);
    assert!(browser.cookies.borrow().is_empty());
    server
        .program
        .wait_for("the session of role \"support\" ended: a member of none", 1);
}

#[test]
fn sessions_of_a_role_make_room_for_others() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute("SET password_encryption = 'md5'; CREATE ROLE many LOGIN PASSWORD 'hunter2' IN ROLE mailroom_monitor")
        .unwrap();
    scene.ask("local all postgres trust\nlocal all all md5\n");
    let server = scene.serve();
    let browsers: Vec<_> = (0..10).map(|_| server.of("many")).collect();
    // The first one is used, the second is not.
    browsers[0].page("messages");
    let last = server.of("many");
    assert_eq!(browsers[1].get("messages").status, 303);
    for browser in [&browsers[0], &browsers[2], &last] {
        browser.page("messages");
    }
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'many'";
    eventually("the connection to end", || {
        (scene.number(connections) <= 10).then_some(())
    });
}

#[test]
fn a_restart_of_the_server_needs_no_other_log_in() {
    let scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("admin");
    for how in [Stop::Fast, Stop::Immediate] {
        scene.cluster.stop_server(how);
        scene.cluster.start_server();
        browser.page("messages");
        scene.cluster.stop_server(how);
        scene.cluster.start_server();
        // What is posted is done, or said not to be known; it is not done twice.
        let told = browser.act("delivery/pause", &[("back", "delivery")]);
        let again = browser.act("delivery/pause", &[("back", "delivery")]);
        let both = [told.as_str(), again.as_str()];
        let paused = both
            .iter()
            .filter(|told| told.starts_with("Paused."))
            .count();
        assert_eq!(paused, 1, "{both:?}");
        assert_eq!(
            browser.act("delivery/resume", &[("back", "delivery")]),
            "Resumed."
        );
    }
}

#[test]
fn behind_pgbouncer_in_transaction_mode_each_request_is_of_its_role() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute("ALTER ROLE support SET timezone = 'Asia/Tokyo'; SELECT mailroom_send('a@example.com', 'Hello', 'Text')")
        .unwrap();
    let pooler = Pooler::start_asking(&scene.cluster);
    let url = format!(
        "host={} port={} dbname=app",
        pooler.socket.display(),
        Pooler::PORT
    );
    let server = scene.serve_at(&[url], &[]);
    eventually("the pooler", || {
        (server.browser("app").log_in("support", PASSWORD).status == 303).then_some(())
    });
    let browsers = ["support", "admin", "monitor"].map(|role| (role, server.of(role)));
    for _ in 0..5 {
        for (role, browser) in &browsers {
            let page = browser.page("messages");
            assert_eq!(page.contains("a@example.com"), *role != "monitor", "{role}");
            assert!(words(&page).contains(&format!("{role} ({role})")), "{role}");
        }
    }
    assert!(
        browsers[1]
            .1
            .act("messages/1/cancel", &[])
            .starts_with("Cancelled.")
    );
    let by = scene.text("SELECT string_agg(role || ' ' || action, ', ') FROM operator_actions");
    assert_eq!(by, "admin cancelled");
    let told = server.browser("app").refused("support", "hunter3");
    assert!(told.starts_with("Role or password is wrong"), "{told}");
}

#[test]
fn a_wrong_start_is_explained() {
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = program();
        command
            .arg("serve")
            .args(arguments)
            .envs(environment.iter().copied());
        let Output { status, stderr, .. } = command.output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    for (arguments, told) in [
        (
            &["-d", "postgresql://ann@h/app"][..],
            "people log in as themselves",
        ),
        (
            &["-d", "host=h dbname=app password=hunter2"],
            "people log in as themselves",
        ),
        (
            &["-d", "host=h dbname=app passfile=/x"],
            "people log in as themselves",
        ),
        (&[], "--database is missing"),
        (
            &["-d", "dbname=app", "--listen", "127.0.0.1:0"],
            "--listen needs a port",
        ),
        (
            &["-d", "dbname=app", "--listen", "0.0.0.0:8425"],
            "--behind-proxy",
        ),
        (
            &[
                "-d",
                "dbname=app",
                "--listen",
                "0.0.0.0:8425",
                "--behind-proxy",
            ],
            "--url https://",
        ),
        (
            &[
                "-d",
                "dbname=app",
                "--listen",
                "0.0.0.0:8425",
                "--behind-proxy",
                "--url",
                "http://ops.example.com",
            ],
            "--url https://",
        ),
        (
            &["-d", "dbname=app", "--url", "https://ann:x@ops.example.com"],
            "--url is not of the form",
        ),
        (&["-d", "dbname=app", "--transports", "x"], "no option"),
    ] {
        let (code, log) = run(arguments, &[]);
        assert_eq!(code, Some(2), "{log}");
        assert!(log.contains(told) && !log.contains("hunter2"), "{log}");
    }
}

#[test]
fn credentials_of_the_environment_let_nobody_in() {
    let scene = Scene::start();
    let mut command = program();
    command.args([
        "serve",
        "--listen",
        &free_address(),
        "--database",
        &scene.url("app"),
    ]);
    command.envs([("PGUSER", "support"), ("PGPASSWORD", PASSWORD)]);
    let log = scene.cluster.scratch().join("serve.log");
    let server = Server::start(crate::sender_scene::Sender::spawn(command, log));
    let browser = server.browser("app");
    assert_eq!(browser.post("login", &[("password", PASSWORD)]).status, 400);
    assert_eq!(browser.refused("admin", ""), WRONG);
    assert_eq!(browser.refused("support", ""), WRONG);
    server.of("support");
}
