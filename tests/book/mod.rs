//! The book: README.md, CONTRIBUTING.md and the pages below docs/. Finds its fenced blocks, and runs SQL by psql.

#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::Cluster;

/// A page: its path from the top of the checkout, and its text.
pub struct Page {
    pub name: String,
    pub text: String,
}

/// A fenced block: ` ```language mark… `, or an HTML comment `<!-- sql … -->`, which is executed but not shown.
#[derive(Debug)]
pub struct Block {
    pub language: String,
    pub marks: Vec<String>,
    pub text: String,
}

impl Block {
    pub fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|found| found == mark)
    }

    /// The language and the marks, as after the fence.
    pub fn info(&self) -> String {
        let words: Vec<&str> = std::iter::once(&self.language)
            .chain(&self.marks)
            .map(String::as_str)
            .collect();
        words.join(" ")
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All files below a folder that have this extension, in the order of their paths.
pub fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All pages, except the notes from which pages of the reference are generated.
pub fn pages() -> Vec<Page> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    names.extend(
        files("docs", "md")
            .iter()
            .map(|path| path.strip_prefix(root()).unwrap().display().to_string())
            .filter(|name| !name.starts_with("docs/reference/notes/")),
    );
    let read = |name: String| Page {
        text: read(&name),
        name,
    };
    names.into_iter().map(read).collect()
}

/// The blocks of a text that name a language.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(&str, Block)> = None;
    for line in text.lines() {
        match &mut open {
            Some((end, _)) if line == *end => found.extend(open.take().map(|(_, block)| block)),
            Some((_, block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {
                let fence = line.strip_prefix("```").map(|info| (info, "```"));
                let comment = line.strip_prefix("<!-- sql").map(|_| ("sql hidden", "-->"));
                open = fence.or(comment).map(|(info, end)| {
                    let mut words = info.split_whitespace().map(str::to_owned);
                    let block = Block {
                        language: words.next().unwrap_or_default(),
                        marks: words.collect(),
                        text: String::new(),
                    };
                    (end, block)
                });
            }
        }
    }
    assert!(open.is_none(), "a block has no end: {open:?}");
    found.retain(|block| !block.language.is_empty());
    found
}

/// The only block of a page with this language and these marks.
pub fn block(page: &str, info: &str) -> String {
    let mut found = blocks(&read(page));
    found.retain(|block| block.info() == info);
    assert_eq!(found.len(), 1, "blocks {info} in {page}");
    found.remove(0).text
}

/// Runs a block by psql and compares the output with the block's comments: `-- => x` expects the line x, `-- => 2 rows`
/// any two lines, `-- => 0 rows` none, and `-- => rows` at least one.
pub fn run_sql(cluster: &Cluster, database: &str, text: &str) {
    let script = cluster.scratch().join("block.sql");
    fs::write(&script, text).unwrap();
    let output = cluster
        .program("psql")
        .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-f"])
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
    // A query must promise a result, except for a request, whose result is the same for any address.
    let asks = text
        .lines()
        .any(|line| line.starts_with("SELECT ") && !line.contains("mailroom_request_"));
    assert!(
        !asks || !promised.is_empty(),
        "nothing is promised:\n{text}"
    );
}

/// The promises in the comments of a block.
fn promises(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.split_once("-- => "))
        .map(|(_, promise)| promise.trim_end())
        .collect()
}

/// Whether the printed lines are exactly the promised ones, in this order.
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

/// Fails unless `is_kept` distinguishes kept promises from broken ones.
pub fn check_promises() {
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
        (vec!["0 rows"], vec![], true),
        (vec!["0 rows"], vec!["a"], false),
    ] {
        assert_eq!(
            is_kept(&promised, &printed),
            kept,
            "{promised:?} {printed:?}"
        );
    }
}
