//! `mailroom receive` (in MAILROOM_SEND): what providers post is verified and recorded, also when something else fails.

mod databases;
pub mod http;
mod limits;
mod reports;
mod scene;
mod sns;
mod unsubscribe;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};
use std::time::Duration;

use http::request;
use scene::{OTHER_PASSWORD, PASSWORD, Scene, TRANSPORTS};

use crate::cluster::eventually;
use crate::sender_scene::program;

#[test]
fn events_are_recorded_once() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let body = scene.schedule("a@example.com");
    for expected in ["recorded", "nothing new"] {
        let answer = listening.post("main", PASSWORD, &body);
        assert_eq!((answer.status, &*answer.body), (200, expected));
    }
    assert_eq!(scene.events(), 1);
    let seen = "SELECT concat_ws(' ', type, transport, recipient, status, outbox_id IS NOT NULL) FROM delivery_events";
    let seen: String = scene.client.query_one(seen, &[]).unwrap().get(0);
    assert_eq!(seen, "delivered main a@example.com 2.0.0 t");
    // The account at a provider may be that of other programs too.
    let others = br#"{"RecordType": "Delivery", "MessageID": "x", "Recipient": "b@example.com"}"#;
    let opened = br#"{"RecordType": "Open", "MessageID": "x", "Recipient": "b@example.com"}"#;
    for (body, expected) in [(&others[..], "nothing new"), (opened, "ignored")] {
        let answer = listening.post("main", PASSWORD, body);
        assert_eq!((answer.status, &*answer.body), (200, expected));
    }
    assert_eq!(scene.events(), 1);
    assert_eq!(listening.program.stop().0.code(), Some(0));
}

/// SendGrid collects events, and signs what it posts.
#[test]
fn a_large_batch_is_recorded_in_parts() {
    const EVENTS: usize = 2_500;
    let mut scene = Scene::start();
    let home = scene.cluster.scratch();
    let openssl = |script: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-euc", script]).current_dir(&home).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{script}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let key = openssl(
        "openssl ecparam -name prime256v1 -genkey -noout -out key.pem
         openssl ec -in key.pem -pubout -outform DER | openssl base64 -A",
    );
    scene.write(&format!(
        "[transports.main]\nprovider = \"sendgrid\"\nevent_secret = \"{key}\"\n"
    ));
    let listening = scene.listen(&["app"]);
    let unsubscribe = |index| {
        format!(
            r#"{{"event": "unsubscribe", "email": "{index}@example.com", "timestamp": 1790000000, "sg_event_id": "e{index}",
                "message_id": "0f8fad5b-d9cb-469f-a165-70867728950e"}}"#
        )
    };
    let events: Vec<String> = (0..EVENTS).map(unsubscribe).collect();
    let body = format!("[{}]", events.join(","));
    let time = openssl("date +%s");
    std::fs::write(home.join("signed"), format!("{time}{body}")).unwrap();
    let signature = openssl("openssl dgst -sha256 -sign key.pem signed | openssl base64 -A");
    let signature = format!("X-Twilio-Email-Event-Webhook-Signature: {signature}");
    let time = format!("X-Twilio-Email-Event-Webhook-Timestamp: {time}");
    let post = |body: &str| {
        let headers = [&*signature, &*time];
        request(
            listening.address,
            "POST",
            "/events/main",
            &headers,
            body.as_bytes(),
        )
    };
    assert_eq!(post(&body).body, "recorded");
    assert_eq!(scene.events(), EVENTS as i64);
    assert_eq!(post(&body).body, "nothing new");
    assert_eq!(post(&body.replace("e7\"", "e8\"")).status, 401);
}

#[test]
fn strangers_are_refused_and_told_nothing() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let body = scene.schedule("a@example.com");
    for password in [OTHER_PASSWORD, "Authorization: Bearer hunter2", "X-None: x"] {
        let answer = listening.post("main", password, &body);
        assert_eq!((answer.status, &*answer.body), (401, "not authentic"));
        let challenge = answer.header("www-authenticate");
        assert_eq!(challenge, Some("Basic realm=\"mailroom\""));
    }
    for odd in [&b"{"[..], b"", b"\xff", b"[]"] {
        let answer = listening.post("main", PASSWORD, odd);
        assert_eq!((answer.status, &*answer.body), (400, "malformed"));
    }
    let ask = |method, path| request(listening.address, method, path, &[PASSWORD], &body);
    for path in [
        "/",
        "/events/",
        "/events/silent",
        "/events/absent",
        "/events/main/",
    ] {
        assert_eq!(ask("POST", path).status, 404, "{path}");
    }
    for (method, path, allowed) in [("GET", "/events/main", "POST"), ("POST", "/health", "GET")] {
        let answer = ask(method, path);
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some(allowed))
        );
    }
    let health = ask("GET", "/health");
    assert_eq!((health.status, &*health.body), (200, "ok"));
    let odd = http::exchange(listening.address, b"nonsense\r\n\r\n");
    assert_eq!(odd.status, 400);
    assert_eq!(scene.events(), 0);
    // One line a minute, without a secret or an address.
    let log = listening.program.log();
    assert_eq!(log.matches("a request was refused").count(), 1, "{log}");
    assert!(
        !log.contains("hunter") && !log.contains("example.com"),
        "{log}"
    );
}

#[test]
fn a_signal_has_the_secrets_read_again() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let body = scene.schedule("a@example.com");
    let ask = |password| listening.post("main", password, &body).status;
    scene.write(&TRANSPORTS.replace(
        "event_secret = \"mailroom:hunter2\"",
        "event_secrets = [\"mailroom:hunter3\", \"mailroom:hunter2\"]",
    ));
    assert_eq!(ask(OTHER_PASSWORD), 401);
    listening.program.signal("-HUP");
    listening.program.wait_for("takes events of main", 2);
    assert_eq!((ask(PASSWORD), ask(OTHER_PASSWORD)), (200, 200));
    scene.write("[transports.main]\nprovider = \"postmark\"\nevent_secret = \"hunter2\"\n");
    listening.program.signal("-HUP");
    listening.program.wait_for("stay in force", 1);
    listening.program.signal("-USR1");
    assert_eq!((ask(PASSWORD), ask(OTHER_PASSWORD)), (200, 200));
    scene.write(&TRANSPORTS.replace("hunter2", "hunter3"));
    listening.program.signal("-HUP");
    listening.program.wait_for("takes events of main", 3);
    assert_eq!((ask(PASSWORD), ask(OTHER_PASSWORD)), (401, 200));
    assert_eq!(scene.events(), 1);
    assert!(!listening.program.log().contains("hunter"));
}

#[test]
fn it_stops_when_the_requests_in_flight_are_answered() {
    let mut scene = Scene::start();
    let socket = scene.cluster.scratch().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(100)))
        .unwrap();
    let listening = scene.listen_under(&["app"], &[("NOTIFY_SOCKET", socket.to_str().unwrap())]);
    let told = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    let body = scene.schedule("a@example.com");
    let mut other = scene.locked();
    let idle = http::connect(listening.address);
    let (answer, (status, took)) = std::thread::scope(|threads| {
        let (address, body) = (listening.address, &body);
        let asking =
            threads.spawn(move || request(address, "POST", "/events/main", &[PASSWORD], body));
        scene.wait_for_lock();
        let stopping = threads.spawn(move || listening.program.stop());
        assert_eq!(told(), "STOPPING=1");
        eventually("no more connections", || {
            TcpStream::connect(address).err().map(|_| ())
        });
        other.batch_execute("COMMIT").unwrap();
        (asking.join().unwrap(), stopping.join().unwrap())
    });
    assert_eq!((answer.status, &*answer.body), (200, "recorded"));
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(scene.events(), 1);
    drop(idle);
}

/// Sends what Postmark posts, over a connection that is returned.
fn begin(address: SocketAddr, body: &[u8]) -> TcpStream {
    let mut stream = http::connect(address);
    let head = http::head("POST", "/events/main", &[PASSWORD]);
    let length = body.len();
    write!(stream, "{head}Content-Length: {length}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    stream
}

#[test]
fn it_stops_while_a_database_does_not_answer() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let body = scene.schedule("a@example.com");
    let mut other = scene.locked();
    let stream = begin(listening.address, &body);
    scene.wait_for_lock();
    // A client that does not wait keeps it from nothing.
    drop(stream);
    let (status, took) = listening.program.stop();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(8), "{took:?}");
    other.batch_execute("COMMIT").unwrap();
    assert_eq!(
        scene.listen(&["app"]).post("main", PASSWORD, &body).status,
        200
    );
    assert_eq!(scene.events(), 1);
}

/// The program, which must end by itself.
fn run(scene: &Scene, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command: Command = program();
    command.arg("receive").arg("--transports");
    command.arg(&scene.transports).args(arguments);
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_start_is_explained() {
    let scene = Scene::start();
    let [good, other] = ["receiver", "other"].map(|user| scene.url(user, "app"));
    let (code, log) = run(&scene, &["-d", &good, "--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(log.contains("--behind-proxy"), "{log}");
    let (code, log) = run(&scene, &["-d", &other, "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(
        log.contains("role \"other\" may not report events")
            && log.contains("GRANT mailroom_receiver"),
        "{log}"
    );
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let (code, log) = run(&scene, &["-d", &good, "--listen", &taken]);
    assert_eq!(code, Some(1));
    assert!(log.contains("cannot listen on"), "{log}");
    drop(holder);
    scene.write("[transports.main]\nprovider = \"postmark\"\nevent_secret = \"hunter2\"\n");
    let (code, log) = run(&scene, &["-d", &good, "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(
        log.contains("event_secret") && !log.contains("hunter"),
        "{log}"
    );
}
