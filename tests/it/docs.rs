//! References in the book are valid: each test and file that it names exists, and each link leads to a page or a
//! section.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::book::{Page, files, pages, read, root};

/// Returns the texts between backticks within a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns the tests that a text names: a module of `tests/`, or `lib` and its modules, and the name of the test. Those
/// of `pg_test` are functions that it calls.
fn named_tests(text: &str) -> BTreeSet<String> {
    quoted(text)
        .filter(|name| {
            name.contains("::")
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:-".contains(c))
                && *name != "program::test"
        })
        .map(str::to_owned)
        .collect()
}

/// Whether a source file has a function of this name with this attribute, also in a block of `proptest!`.
fn has_marked(source: &Path, attribute: &str, name: &str) -> bool {
    let text = fs::read_to_string(source).unwrap_or_default();
    let mut is_test = false;
    text.lines().any(|line| {
        let line = line.trim();
        if line.starts_with(attribute) {
            is_test = true;
        } else if is_test && !line.starts_with('#') {
            is_test = false;
            return line
                .strip_prefix("fn ")
                .is_some_and(|rest| rest.split('(').next() == Some(name));
        }
        false
    })
}

/// Whether a file is this module, or in its folder.
fn is_of(module: &str, path: &Path) -> bool {
    path.strip_prefix(root())
        .unwrap()
        .with_extension("")
        .components()
        .any(|part| part.as_os_str() == module)
}

/// Whether there is a test of this name.
pub fn exists(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let tests = root().join("tests");
    match parts[..] {
        ["regress", name] => tests.join(format!("pg_regress/sql/{name}.sql")).is_file(),
        ["isolation", name] => tests.join(format!("isolation/specs/{name}.spec")).is_file(),
        ["pg_test", name] => files("src", "rs")
            .iter()
            .any(|path| is_of("pg_test", path) && has_marked(path, "#[pg_extern]", name)),
        ["lib", ref modules @ .., name] => ["src", "crates/core/src", "crates/mailroom/src"]
            .into_iter()
            .flat_map(|folder| files(folder, "rs"))
            .any(|path| {
                modules.iter().all(|module| is_of(module, &path))
                    && has_marked(&path, "#[test]", name)
            }),
        [program, name] => files("tests", "rs")
            .iter()
            .any(|path| is_of(program, path) && has_marked(path, "#[test]", name)),
        _ => false,
    }
}

#[test]
fn every_named_test_exists() {
    let mut named = BTreeSet::new();
    for page in pages() {
        for test in named_tests(&page.text) {
            assert!(exists(&test), "{}: there is no {test}", page.name);
            named.insert(test);
        }
    }
    assert!(named.len() >= 40, "only {} tests are named", named.len());
    for missing in [
        "accounts::no_such_test",
        "nowhere::rolling_back_is_no_way_to_guess_on",
        "lib::token::no_such_test",
        "regress::nothing",
        "pg_test::no_such_function",
        // A function without the attribute.
        "pg_test::chi_square",
        // A function, but no test.
        "accounts::redeem",
    ] {
        assert!(!exists(missing), "{missing}");
    }
}

#[test]
fn every_claim_of_the_security_page_names_its_test() {
    let text = read("docs/operations/security.md");
    let mut claims = 0;
    for section in [
        "Who reads and does what",
        "Links",
        "The key",
        "The page",
        "Hostile surroundings",
    ] {
        let (_, rest) = text
            .split_once(&format!("\n## {section}\n"))
            .unwrap_or_else(|| panic!("there is no section {section}"));
        let body = rest.split("\n## ").next().unwrap();
        for claim in body.split("\n- ").skip(1) {
            // mailroom does not test what depends on the version of PostgreSQL.
            if claim.starts_with("On PostgreSQL") {
                continue;
            }
            assert!(
                !named_tests(claim).is_empty(),
                "{section}: which test holds this?\n{claim}"
            );
            claims += 1;
        }
    }
    assert!(claims >= 25, "only {claims} claims were found");
}

/// Returns the targets of the links on a page that lead to files of the checkout.
fn links(page: &Page) -> Vec<String> {
    page.text
        .split("](")
        .skip(1)
        .map(|link| link.split(')').next().unwrap().to_owned())
        .filter(|target| !target.contains("://"))
        .collect()
}

/// Returns the files and folders of the checkout that a text names.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    const TOP: [&str; 6] = ["benches", "crates", "docs", "sql", "src", "tests"];
    quoted(text).filter(|name| {
        let (top, rest) = name.split_once('/').unwrap_or((name, "-"));
        TOP.contains(&top)
            && rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
            && !name.contains("--")
    })
}

#[test]
fn every_named_file_exists() {
    let mut named = 0;
    for page in pages() {
        for name in named_files(&page.text) {
            assert!(root().join(name).exists(), "{}: {name}", page.name);
            named += 1;
        }
    }
    assert!(named >= 40, "only {named} files were named");
}

/// Whether a source file has this method within an `impl` or a trait of this type.
fn has_method(source: &str, of: &str, method: &str) -> bool {
    let mut is_inside = false;
    source.lines().any(|line| {
        if line.starts_with("impl") || line.contains("trait ") {
            is_inside = line
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == of);
        }
        let name = line.split_once("fn ").map_or("", |(_, rest)| rest);
        is_inside && name.split(['(', '<']).next() == Some(method)
    })
}

#[test]
fn every_named_method_exists() {
    let sources: Vec<String> = ["src", "crates"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_there = |of: &str, method: &str| sources.iter().any(|text| has_method(text, of, method));
    let mut named = 0;
    for page in pages() {
        for (of, method) in quoted(&page.text).filter_map(|name| name.split_once("::")) {
            if of.starts_with(char::is_uppercase) && of.chars().all(char::is_alphanumeric) {
                assert!(is_there(of, method), "{}: {of}::{method}", page.name);
                named += 1;
            }
        }
    }
    assert!(named >= 20, "only {named} methods were named");
    assert!(!is_there("Relay", "post") && !is_there("Nothing", "send"));
}

/// Returns the anchors that GitHub makes from the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    page.lines()
        .filter(|line| {
            is_code ^= line.starts_with("```");
            !is_code && line.starts_with('#')
        })
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_section_of_it() {
    let (mut to_files, mut to_sections) = (0, 0);
    for page in pages() {
        let folder = root().join(&page.name).parent().unwrap().to_owned();
        for target in links(&page) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = folder.join(file);
            assert!(file.is_empty() || path.exists(), "{}: {target}", page.name);
            to_files += 1;
            if anchor.is_empty() {
                continue;
            }
            let text = if file.is_empty() {
                page.text.clone()
            } else {
                fs::read_to_string(path).unwrap()
            };
            assert!(anchors(&text).contains(anchor), "{}: {target}", page.name);
            to_sections += 1;
        }
    }
    assert!(to_files >= 100, "only {to_files} links were found");
    assert!(
        to_sections >= 20,
        "only {to_sections} links to sections were found"
    );
}

#[test]
fn the_table_of_contents_has_every_page() {
    let pages = pages();
    let contents = pages
        .iter()
        .find(|page| page.name == "docs/README.md")
        .unwrap();
    let listed: BTreeSet<String> = links(contents).into_iter().collect();
    for page in &pages {
        let Some(name) = page.name.strip_prefix("docs/") else {
            continue;
        };
        assert!(
            name == "README.md" || listed.contains(name),
            "{name} is not listed"
        );
    }
}

/// Tests name the invariants of the design: in the name of the function, as `i5_no_transaction_is_open`, or in the
/// comment above it.
/// What PGXN and Debian are told.
#[test]
fn the_metadata_is_of_this_version_and_names_files_that_exist() {
    let version = env!("CARGO_PKG_VERSION");
    let meta: serde_json::Value = serde_json::from_str(&read("META.json")).unwrap();
    let provided = &meta["provides"]["mailroom"];
    assert_eq!(meta["version"], version);
    assert_eq!(provided["version"], version);
    for part in ["file", "docfile"] {
        let path = provided[part].as_str().unwrap();
        assert!(root().join(path).is_file(), "{path}");
    }
    let maintainer = meta["maintainer"].as_str().unwrap();
    assert!(maintainer.ends_with('>') && maintainer.contains('@'));
    let first = format!("mailroom ({version}) ");
    let changes = read("packaging/debian/changelog");
    assert!(changes.starts_with(&first), "{changes}");
    assert!(
        changes.contains(&format!("\n -- {maintainer}  ")),
        "{changes}"
    );
    let control = read("packaging/debian/control.head");
    assert!(
        control.contains(&format!("Maintainer: {maintainer}\n")),
        "{control}"
    );
}

#[test]
fn every_invariant_is_named_by_a_test() {
    let mut named = BTreeSet::new();
    for path in files("tests", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let mut comment = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("///") {
                comment.push_str(rest);
            } else if let Some(test) = line.strip_prefix("fn ") {
                let words = test.split('_').take(1).map(str::to_uppercase);
                named.extend(words.filter(|word| is_invariant(word)));
            } else if line == "#[test]" {
                let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
                named.extend(words.filter(|word| is_invariant(word)).map(str::to_owned));
            } else {
                comment.clear();
            }
        }
    }
    let missing: Vec<String> = (1..=11)
        .map(|number| format!("I{number}"))
        .filter(|name| !named.contains(name))
        .collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
}

/// Whether a word is `I` and a number.
fn is_invariant(word: &str) -> bool {
    word.strip_prefix('I')
        .is_some_and(|number| number.parse::<u8>().is_ok())
}
