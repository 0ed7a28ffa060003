//! What a client can make the program hold, and for how long.

use std::io::{Read, Write};
use std::thread::scope;
use std::time::{Duration, Instant};

use super::http::{self, connect, exchange, head, read_to_end, request};
use super::scene::{OTHER_PASSWORD, PASSWORD, Scene};

const MIB: usize = 1024 * 1024;

#[test]
fn a_body_that_is_too_large_is_refused() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let post = |body: &[u8]| listening.post("main", PASSWORD, body);
    // The answer arrives although the body is sent regardless.
    assert_eq!(post(&vec![b' '; 5 * MIB]).status, 413);
    assert_eq!(post(&vec![b' '; 4 * MIB + 1]).status, 413);
    // Nothing of it is waited for.
    let mut alone = head(
        "POST",
        "/events/main",
        &[PASSWORD, "Content-Length: 5242880"],
    );
    alone.push_str("Expect: 100-continue\r\n\r\n");
    let answer = exchange(listening.address, alone.as_bytes());
    assert_eq!(answer.status, 413);
    let mut chunked = head("POST", "/events/main", &[PASSWORD]).into_bytes();
    chunked.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        chunked.extend(format!("{MIB:x}\r\n").as_bytes());
        chunked.extend(vec![b' '; MIB]);
        chunked.extend(b"\r\n");
    }
    assert_eq!(exchange(listening.address, &chunked).status, 413);
    let large_head = head("POST", "/events/main", &[&"X: y".repeat(64 * 1024)]);
    let answer = exchange(listening.address, format!("{large_head}\r\n").as_bytes());
    assert!([400, 431].contains(&answer.status), "{answer:?}");
    // The largest that is taken.
    let mut body = scene.schedule("a@example.com");
    body.resize(4 * MIB, b' ');
    assert_eq!(post(&body).body, "recorded");
}

#[test]
fn slow_clients_end_and_keep_no_other_from_its_answer() {
    const IDLE: usize = 300;
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let address = listening.address;
    let body = scene.schedule("a@example.com");
    let mut large = scene.schedule("b@example.com");
    large.resize(MIB, b' ');
    let begun = head("POST", "/events/main", &[PASSWORD]);
    scope(|threads| {
        let slow_head = threads.spawn(|| {
            let begin = Instant::now();
            let mut stream = connect(address);
            // A byte now and then does not lengthen the time.
            for byte in begun.as_bytes() {
                std::thread::sleep(Duration::from_millis(500));
                if stream.write_all(&[*byte]).is_err() || begin.elapsed() > Duration::from_secs(60)
                {
                    break;
                }
            }
            (read_to_end(&mut stream), begin.elapsed())
        });
        let slow_body = threads.spawn(|| {
            let begin = Instant::now();
            let mut stream = connect(address);
            write!(stream, "{begun}Content-Length: 4194304\r\n\r\n{{").unwrap();
            (read_to_end(&mut stream), begin.elapsed())
        });
        // As many bodies as are read at a time, and large ones that have begun.
        let others = [b"{".to_vec(), vec![b' '; MIB]];
        let others = others.iter().flat_map(|part| vec![part; 20]);
        let slow: Vec<_> = others
            .map(|part| {
                let mut stream = connect(address);
                write!(stream, "{begun}Content-Length: 4194304\r\n\r\n").unwrap();
                stream.write_all(part).unwrap();
                stream
            })
            .collect();
        let begin = Instant::now();
        let answer = listening.post("main", PASSWORD, &body);
        assert_eq!(answer.body, "recorded");
        assert!(begin.elapsed() < Duration::from_secs(5));
        // A large one has no turn while they have all.
        let answer = listening.post("main", PASSWORD, &large);
        assert_eq!((answer.status, &*answer.body), (503, "busy"));
        assert_eq!(answer.header("retry-after"), Some("10"));
        let (answer, took) = slow_head.join().unwrap();
        assert_eq!(answer, "");
        assert!((9..40).contains(&took.as_secs()), "{took:?}");
        let (answer, took) = slow_body.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!((19..50).contains(&took.as_secs()), "{took:?}");
        drop(slow);
        let answer = listening.post("main", PASSWORD, &large);
        assert_eq!(answer.body, "recorded");
    });
    // More than it takes at a time: one more is answered when they have gone.
    let idle: Vec<_> = (0..IDLE).map(|_| connect(address)).collect();
    let begin = Instant::now();
    assert_eq!(request(address, "GET", "/health", &[], b"").status, 200);
    assert!((5..60).contains(&begin.elapsed().as_secs()));
    drop(idle);
}

#[test]
fn many_connections_and_bodies_take_no_more_memory() {
    let mut scene = Scene::start();
    let listening = scene.listen(&["app"]);
    let address = listening.address;
    let body = scene.schedule("a@example.com");
    let post = |password, body: &[u8]| listening.post("main", password, body).status;
    let some = |count: usize| {
        for index in 0..count {
            match index % 3 {
                0 => assert_eq!(post(PASSWORD, &body), 200),
                1 => assert_eq!(post(OTHER_PASSWORD, &body), 401),
                _ => drop(connect(address)),
            }
        }
    };
    some(500);
    let before = listening.memory("VmRSS");
    some(10_000);
    let growth = listening.memory("VmRSS").saturating_sub(before);
    assert!(growth < 2_048, "{growth} kB");
    // Over one connection too.
    let mut stream = connect(address);
    let asked = format!("{}\r\n", head("GET", "/health", &[]));
    for _ in 0..1_000 {
        stream.write_all(asked.as_bytes()).unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"ok\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            read.push(byte[0]);
        }
    }
    drop(stream);
    // Sixteen bodies at a time are read.
    let large = vec![b' '; 4 * MIB];
    scope(|threads| {
        let all: Vec<_> = (0..64)
            .map(|_| {
                threads.spawn(|| {
                    http::request(address, "POST", "/events/main", &[OTHER_PASSWORD], &large)
                })
            })
            .collect();
        for one in all {
            assert_eq!(one.join().unwrap().status, 401);
        }
    });
    let peak = listening.memory("VmHWM");
    assert!(peak < 200 * 1024, "{peak} kB");
    assert_eq!(scene.events(), 1);
}
