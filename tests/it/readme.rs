//! Every command and query of the README and of the pages that continue it, executed.
//!
//! Blocks marked `sql` run in their order in a database `app` that has a worker; between two of them the
//! queues are given time to empty. `fresh` gives a block a database of its own, `no-worker` a server that does
//! not preload the library. A comment `-- => x` is a line that psql must print, `-- => 2 rows` are two lines of any sort,
//! and `-- => rows` is at least one. `sh` blocks are make targets, or, marked `key`, run in the data directory. The
//! `console` block is what the demonstration shows, whose SMTP server the Python runs that `MAILROOM_PYTHON` names.

use std::process::Command;

use crate::cluster::{Cluster, eventually, number};
use crate::demo::Demo;

/// The pages in which one database `app` is used from the first to the last.
const PAGES: [&str; 3] = ["README.md", "docs/guide.md", "docs/transports.md"];

struct Block<'a> {
    language: &'a str,
    marks: Vec<&'a str>,
    text: String,
}

/// The fenced blocks that name a language.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Option<Block<'_>>> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let mut words = info.split_whitespace();
                open = Some(words.next().map(|language| Block {
                    language,
                    marks: words.collect(),
                    text: String::new(),
                }));
            }
            (Some(_), Some(_)) => found.extend(open.take().flatten()),
            (None, Some(Some(block))) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

fn read(page: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(page)).unwrap()
}

/// What the comments of a block promise.
fn promises(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.split_once("-- => "))
        .map(|(_, promise)| promise.trim_end())
        .collect()
}

fn run_sql(cluster: &Cluster, database: &str, text: &str) {
    let script = cluster.scratch().join("block.sql");
    std::fs::write(&script, text).unwrap();
    let output = cluster
        .program("psql")
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
            "-f",
        ])
        .arg(&script)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let promised = promises(text);
    let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
    assert!(
        is_kept(&promised, &printed),
        "{text}\npromised: {promised:#?}\nprinted: {printed:#?}"
    );
    // What is asked has an answer; but for a request, whose answer is the same for everybody.
    let asks = text
        .lines()
        .any(|line| line.starts_with("SELECT ") && !line.contains("mailroom_request_"));
    assert!(
        !asks || !promised.is_empty(),
        "nothing is promised:\n{text}"
    );
}

/// Whether these lines are what was promised, one after the other, and nothing besides.
fn is_kept(promised: &[&str], printed: &[&str]) -> bool {
    let Some((first, rest)) = promised.split_first() else {
        return printed.is_empty();
    };
    if *first == "rows" {
        return (1..=printed.len()).any(|rows| is_kept(rest, &printed[rows..]));
    }
    let rows = first
        .strip_suffix(" rows")
        .or(first.strip_suffix(" row"))
        .and_then(|rows| rows.parse().ok());
    match rows {
        Some(rows) => printed.len() >= rows && is_kept(rest, &printed[rows..]),
        None => printed.first() == Some(first) && is_kept(rest, &printed[1..]),
    }
}

#[test]
fn a_promise_is_kept_or_broken() {
    for (promised, printed, kept) in [
        (vec![], vec![], true),
        (vec![], vec!["a"], false),
        (vec!["a"], vec![], false),
        (vec!["1 row"], vec!["x"], true),
        (vec!["1 row"], vec![], false),
        (vec!["2 rows", "a"], vec!["x", "y", "a"], true),
        (vec!["2 rows", "a"], vec!["x", "a"], false),
        (vec!["rows", "a"], vec!["x", "a", "a"], true),
        (vec!["rows"], vec![], false),
    ] {
        assert_eq!(
            is_kept(&promised, &printed),
            kept,
            "{promised:?} {printed:?}"
        );
    }
}

#[test]
fn every_query_works() {
    let cluster = Cluster::start(&[]);
    let bare = Cluster::start(&["shared_preload_libraries = ''"]);
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let text = PAGES.map(read).join("\n");
    let mut executed = 0;
    for (index, block) in blocks(&text)
        .into_iter()
        .enumerate()
        .filter(|(_, block)| block.language == "sql")
    {
        let server = if block.marks.contains(&"no-worker") {
            &bare
        } else {
            &cluster
        };
        if block.marks.contains(&"fresh") {
            let database = format!("fresh{index}");
            server
                .connect("postgres")
                .batch_execute(&format!("CREATE DATABASE {database}"))
                .unwrap();
            run_sql(server, &database, &block.text);
        } else {
            run_sql(server, "app", &block.text);
            let mut client = server.connect("app");
            eventually("the queues to empty", || {
                let waiting = "SELECT (SELECT count(*) FROM mailroom.link_requests) + (SELECT count(*) FROM mailroom.pending)";
                (number(&mut client, waiting) == 0).then_some(())
            });
        }
        executed += 1;
    }
    assert!(executed >= 25, "only {executed} blocks were found");
}

#[test]
fn every_make_target_exists() {
    let text = read("README.md");
    let mut seen = 0;
    for block in blocks(&text)
        .iter()
        .filter(|block| block.language == "sh" && block.marks.is_empty())
    {
        for line in block.text.lines() {
            let arguments = line.strip_prefix("make ").expect("a make command");
            // -n prints what would be done, and fails for a target that does not exist.
            let output = Command::new("make")
                .arg("-n")
                .args(arguments.split_whitespace())
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .env_remove("MAKEFLAGS")
                .env_remove("MAKELEVEL")
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{line}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            seen += 1;
        }
    }
    assert!(seen >= 3);
}

#[test]
fn the_key_is_rotated_as_described() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let secret = vec![7_u8; 32];
    let sign = "SELECT mailroom_sign('activation', $1)";
    let old: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    let text = read("docs/guide.md");
    let rotation = blocks(&text)
        .into_iter()
        .find(|block| block.marks.contains(&"key"))
        .unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &rotation.text]);
    let status = cluster
        .as_server_user(shell)
        .current_dir(cluster.data())
        .status()
        .unwrap();
    assert!(status.success());
    let new: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    assert_ne!(old, new);
    for token in [old, new] {
        let genuine: bool = client
            .query_one("SELECT mailroom_verify($1, 'activation')", &[&token])
            .unwrap()
            .get(0);
        assert!(genuine);
    }
}

/// Whether a text has the parts of this picture, which stand between ellipses, in their order.
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
    let readme = read("README.md");
    let picture = blocks(&readme)
        .into_iter()
        .find(|block| block.language == "console")
        .unwrap();
    let mut shown = Vec::new();
    Demo::start(&mut shown).run();
    let shown = String::from_utf8(shown).unwrap();
    if let Err(part) = shows(&shown, &picture.text) {
        panic!("in its place there is no\n{part}\nin\n{shown}");
    }

    assert_eq!(shows("a: 1\nb\nc\n", "a: …\n…\nc\n"), Ok(()));
    assert_eq!(shows("a\nb\n", "b\n…a\n"), Err("a\n".to_owned()));
    assert_eq!(shows("a\nb\n", "a\nc\n"), Err("a\nc\n".to_owned()));
}
