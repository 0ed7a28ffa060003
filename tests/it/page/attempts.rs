//! Guessing passwords.

use std::time::{Duration, Instant};

use super::scene::{PASSWORD, Scene, free_address};
use crate::receive::http::Answer;

/// Attempts that the server has seen.
fn seen(scene: &Scene) -> usize {
    let log = scene.cluster.log();
    log.matches("password authentication failed").count()
}

// alone: another one is to log in within seconds meanwhile
#[test]
fn few_of_a_thousand_guesses_reach_the_server_and_the_log() {
    const GUESSES: usize = 1_000;
    let scene = Scene::start();
    let server = scene.serve();
    let alone = Instant::now();
    server.of("support");
    // Without optimization, a log-in hashes for a second, and each waits for the ten guesses that are let through.
    let usual = Duration::from_secs(2).max(alone.elapsed() * 15);
    let (answers, minutes) = std::thread::scope(|threads| {
        let guess = |from: usize| {
            let server = &server;
            threads.spawn(move || {
                let fields = super::scene::encoded(&[("role", "support"), ("password", &format!("guess {from}"))]);
                let head = format!(
                    "POST /app/login HTTP/1.1\nHost: {0}\nX-Forwarded-For: 192.0.2.1, 203.0.113.7\nOrigin: http://{0}\n",
                    server.address
                );
                (0..GUESSES / 10).map(|_| server.exchange(&head, &fields)).collect::<Vec<Answer>>()
            })
        };
        let begin = Instant::now();
        let guessing: Vec<_> = (0..10).map(guess).collect();
        // Meanwhile another one logs in.
        let other = Instant::now();
        server.of("support");
        assert!(other.elapsed() < usual, "{:?}", other.elapsed());
        let answers: Vec<Answer> = guessing
            .into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect();
        // Those that have begun.
        (answers, 1 + begin.elapsed().as_secs() as usize / 60)
    });
    let of = |status| answers.iter().filter(move |answer| answer.status == status);
    let (refused, too_many) = (of(403).count(), of(429));
    assert!(
        (10..=10 * minutes).contains(&refused),
        "{refused} in {minutes}"
    );
    assert_eq!(too_many.clone().count(), GUESSES - refused);
    for answer in too_many {
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
    }
    assert!(seen(&scene) <= 15 * minutes, "{}", seen(&scene));
    let log = server.program.log();
    let lines = log.lines().filter(|line| line.contains("WARNING"));
    let lines: Vec<&str> = lines.collect();
    assert!((1..=2 * minutes).contains(&lines.len()), "{lines:?}");
    let told = "role \"support\" was not logged in from 203.0.113.7: ";
    assert!(lines[0].contains(told), "{lines:?}");
    assert!(!log.contains("guess"), "{log}");
    // Nor does the right password help that address, though any other.
    let ask = |password: &str| {
        let fields = super::scene::encoded(&[("role", "support"), ("password", password)]);
        let head = format!(
            "POST /app/login HTTP/1.1\nHost: {0}\nX-Forwarded-For: 203.0.113.7\nOrigin: http://{0}\n",
            server.address
        );
        server.exchange(&head, &fields).status
    };
    let again = (0..11).map(|_| ask("guess")).find(|status| *status == 429);
    assert_eq!((again, ask(PASSWORD)), (Some(429), 429));
    server.of("support");
}

#[test]
fn without_a_proxy_nobody_chooses_the_address() {
    let scene = Scene::start();
    let mut program = crate::sender_scene::program();
    program.args([
        "serve",
        "--listen",
        &free_address(),
        "--database",
        &scene.url("app"),
    ]);
    let log = scene.cluster.scratch().join("serve.log");
    let server = super::scene::Server::start(crate::sender_scene::Sender::spawn(program, log));
    let answers = (0..12).map(|_| server.browser("app").log_in("support", "hunter3").status);
    let answers: Vec<u16> = answers.collect();
    assert_eq!(answers, [vec![403; 10], vec![429; 2]].concat());
    let log = server.program.log();
    assert!(
        log.contains("was not logged in from 127.0.0.1") && !log.contains("198.51"),
        "{log}"
    );
}
