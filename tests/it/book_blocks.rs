//! Tests execute each block of the book: those of this file, or the test that `elsewhere` names. `NOT_EXECUTED` lists
//! the exceptions, which docs/README.md names.
//!
//! Blocks marked `sql` run in the order of their page, in a database `app` that is created for the page and has a
//! worker. After each of them the test waits until the queues are empty. `fresh` gives a block its own database,
//! `no-worker` a server that does not preload the library. `book::run_sql` defines the expected results in their
//! comments.

mod elsewhere;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use self::elsewhere::{ELSEWHERE, NOT_EXECUTED};
use crate::book::{Block, Page, blocks, pages, root, run_sql};
use crate::cluster::{Cluster, eventually, number};

/// The pages whose commands run `mailroom` in two databases.
pub const FLEETS: [&str; 2] = ["docs/guides/sharding.md", "docs/guides/several-machines.md"];

/// The page whose queries run as a role with the memberships that the page names, not as a superuser.
const TROUBLESHOOTING: &str = "docs/operations/troubleshooting.md";

/// Returns the test that executes a block, or the reason why no test does; `None` if the block is not provided for.
fn executed_by(page: &Page, block: &Block) -> Option<&'static str> {
    let name = page.name.as_str();
    let info = block.info();
    let listed = ELSEWHERE
        .iter()
        .chain(&NOT_EXECUTED)
        .find(|(of, what, _)| *of == name && *what == info);
    if let Some((_, _, test)) = listed {
        return Some(test);
    }
    match block.language.as_str() {
        "sql" | "sh" if FLEETS.contains(&name) => {
            Some("book_commands::the_pages_on_fleets_are_executed")
        }
        "sql" => Some("every_query_works"),
        "ini" => Some("every_setting_is_accepted"),
        "toml" => Some("every_transports_file_is_good"),
        "sh" if block.text.lines().all(|line| line.starts_with("make ")) => {
            Some("every_make_target_exists")
        }
        // A diagram.
        "mermaid" => Some(""),
        _ => None,
    }
}

#[test]
fn every_block_is_executed() {
    let pages = pages();
    let mut seen = 0;
    let mut found = BTreeSet::new();
    for page in &pages {
        for block in blocks(&page.text) {
            let info = block.info();
            assert!(
                executed_by(page, &block).is_some(),
                "{}: no test executes\n{info}\n{}",
                page.name,
                block.text
            );
            found.insert((page.name.clone(), info));
            seen += 1;
        }
    }
    assert!(seen >= 80, "only {seen} blocks were found");
    for (page, _, test) in ELSEWHERE {
        assert!(crate::docs::exists(test), "{page}: there is no {test}");
    }
    for (page, info, _) in ELSEWHERE.iter().chain(&NOT_EXECUTED) {
        let entry = ((*page).to_owned(), (*info).to_owned());
        assert!(found.contains(&entry), "there is no {entry:?}");
    }
}

#[test]
fn a_promise_is_kept_or_broken() {
    crate::book::check_promises();
}

#[test]
fn every_query_works() {
    let cluster = Cluster::start(&[]);
    let bare = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut executed = 0;
    for page in pages() {
        let mut blocks = blocks(&page.text);
        blocks.retain(|block| executed_by(&page, block) == Some("every_query_works"));
        if blocks.is_empty() {
            continue;
        }
        let mut admin = cluster.connect("postgres");
        admin.batch_execute("DROP DATABASE IF EXISTS app").unwrap();
        admin.batch_execute("CREATE DATABASE app").unwrap();
        if !blocks[0].text.contains("CREATE EXTENSION") {
            let install = "CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom; \
                 ALTER DATABASE app SET search_path = \"$user\", public, mailroom";
            cluster.connect("app").batch_execute(install).unwrap();
        }
        let role = if page.name == TROUBLESHOOTING {
            let create = "CREATE ROLE troubleshooter IN ROLE mailroom_admin, pg_monitor";
            admin.batch_execute(create).unwrap();
            "SET ROLE troubleshooter;\n"
        } else {
            ""
        };
        for (index, block) in blocks.iter().enumerate() {
            let server = if block.has("no-worker") {
                &bare
            } else {
                &cluster
            };
            eprintln!("{}: block {index}", page.name);
            if block.has("fresh") {
                let database = format!("fresh{executed}");
                server
                    .connect("postgres")
                    .batch_execute(&format!("CREATE DATABASE {database}"))
                    .unwrap();
                run_sql(server, &database, &block.text);
            } else {
                run_sql(server, "app", &format!("{role}{}", block.text));
                let mut client = server.connect("app");
                eventually("the queues to empty", || {
                    let waiting = "SELECT (SELECT count(*) FROM mailroom.link_requests) + (SELECT count(*) FROM mailroom.pending)";
                    (number(&mut client, waiting) == 0).then_some(())
                });
            }
            executed += 1;
        }
    }
    assert!(executed >= 60, "only {executed} blocks were found");
}

#[test]
fn every_setting_is_accepted() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    let mut executed = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) != Some("every_setting_is_accepted") {
                continue;
            }
            // The last line for a setting takes effect, and the server reads this file last.
            let before = read_data(&cluster);
            cluster.append("postgresql.auto.conf", &block.text);
            // A change that needs a restart is reported as an error too, but the setting is valid.
            let wrong = "SELECT count(*) FROM pg_file_settings WHERE error IS NOT NULL AND error <> 'setting could not be applied'";
            assert_eq!(
                number(&mut client, wrong),
                0,
                "{}\n{}",
                page.name,
                block.text
            );
            let settings = block.text.lines().filter(|line| line.contains('=')).count();
            let read = format!(
                "SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf' AND sourceline > {before}"
            );
            assert_eq!(usize::try_from(number(&mut client, &read)), Ok(settings));
            executed += 1;
        }
    }
    assert!(executed >= 3, "only {executed} blocks were found");
}

/// Returns the number of lines of postgresql.auto.conf.
fn read_data(cluster: &Cluster) -> usize {
    let file = cluster.data().join("postgresql.auto.conf");
    fs::read_to_string(file).unwrap().lines().count()
}

#[test]
fn every_transports_file_is_good() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) == Some("every_transports_file_is_good") {
                let read = mailroom_core::transport::config::parse(&block.text, Path::new("/"));
                assert!(
                    read.is_ok(),
                    "{}\n{}\n{:?}",
                    page.name,
                    block.text,
                    read.err()
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 10, "only {seen} blocks were found");
}

#[test]
fn every_make_target_exists() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&page.text) {
            if executed_by(&page, &block) != Some("every_make_target_exists") {
                continue;
            }
            for line in block.text.lines() {
                let arguments = line.strip_prefix("make ").unwrap();
                // -n prints what would be done, and fails for a target that does not exist.
                let output = Command::new("sh")
                    .args(["-c", &format!("make -n {arguments}")])
                    .current_dir(root())
                    .env_remove("MAKEFLAGS")
                    .env_remove("MAKELEVEL")
                    .output()
                    .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{line}\n{errors}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 3, "only {seen} commands were found");
}
