//! Words: comments and the book say who does something, the names of tests are short, and I11: prose decides nothing.
//! This finds what can be decided without guessing: a search in the text of an error by its known names. The rest is a
//! rule for people: states, outcomes and flags are columns and enums.

use std::fs;
use std::path::{Path, PathBuf};

/// All files below a folder that have this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
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
    found
}

/// The code of a document; its other lines are blank.
fn shown_code(text: &str) -> String {
    let mut within = false;
    text.lines().fold(String::new(), |mut code, line| {
        if line.starts_with("```") {
            within = !within;
        } else if within {
            code.push_str(line);
        }
        code.push('\n');
        code
    })
}

/// Words that hide who does something, or that no manual uses.
const UNCLEAR: [&str; 7] = [
    "somebody", "nobody", "whoever", "whatever", "anew", "hence", "lest",
];

/// The unclear words of a text, except in names.
fn unclear(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| UNCLEAR.contains(&word.to_lowercase().as_str()))
        .collect()
}

/// The lines of a source that are only a comment. Others may contain data.
fn comments<'a>(text: &'a str, marker: &str) -> String {
    let is_comment = |line: &&'a str| line.trim_start().starts_with(marker);
    text.lines()
        .filter(is_comment)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_book_and_comments_say_who_does_what() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let book = files("docs", "md").into_iter().chain(top);
    let mut texts: Vec<(PathBuf, String)> = book
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    assert!(texts.len() > 50, "only {} pages", texts.len());
    for (extension, marker) in [("rs", "//"), ("sql", "--"), ("spec", "#"), ("sh", "#")] {
        for path in ["sql", "src", "crates", "tests"]
            .into_iter()
            .flat_map(|folder| files(folder, extension))
        {
            let text = fs::read_to_string(&path).unwrap();
            texts.push((path, comments(&text, marker)));
        }
    }
    assert!(texts.len() > 500, "only {} files", texts.len());
    for (path, text) in texts {
        let found = unclear(&text);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    let both = "let a = \"nobody\";\n    // Nobody knows, `a::somebody_else` does.";
    assert_eq!(unclear(&comments(both, "//")), ["Nobody"]);
}

#[test]
fn the_names_of_tests_fit_a_line() {
    let mut seen = 0;
    for path in ["src", "crates", "tests"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
    {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(str::trim_start);
        for name in lines.filter_map(|line| line.strip_prefix("fn ")) {
            let name = name.split(['(', '<']).next().unwrap();
            assert!(name.len() <= 80, "{}: {name}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 1_000, "only {seen} functions");
}

/// The test harness captures what a passing test prints by macros.
#[test]
fn what_is_skipped_is_told_past_the_harness() {
    let mut looked = 0;
    for path in ["tests", "src", "crates"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
    {
        let text = fs::read_to_string(&path).unwrap();
        let code: String = text.split_whitespace().collect();
        let captured = code.contains("println!(\"skipped");
        assert!(!captured, "{}: use cluster::skip", path.display());
        looked += 1;
    }
    assert!(looked > 100, "only {looked} files");
}

/// The names of the text of an error in PL/pgSQL and in the tables.
const TEXTS: [&str; 2] = ["sqlerrm", "last_error"];
/// Operators of SQL that search the text before them, and functions that search their argument.
const OPERATORS: [&str; 8] = [
    " like ",
    " ilike ",
    " not like ",
    " not ilike ",
    " similar ",
    " ~",
    " !~",
    " ^@",
];
const FUNCTIONS: [&str; 4] = ["starts_with(", "strpos(", "regexp_match(", "regexp_like("];
/// Searches of the message of an error in Rust, without white space.
const SEARCHES: [&str; 5] = [
    "message().contains(",
    "message().starts_with(",
    "message().ends_with(",
    "message().find(",
    "message()==\"",
];

/// Whether a line of SQL searches the text of an error.
fn searches_sql(line: &str) -> bool {
    let code = line.split("--").next().unwrap_or_default().to_lowercase();
    TEXTS.iter().any(|text| {
        code.match_indices(text).any(|(at, _)| {
            let after = &code[at + text.len()..];
            let before = code[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '.');
            OPERATORS.iter().any(|operator| after.starts_with(operator))
                || FUNCTIONS.iter().any(|function| before.ends_with(function))
        })
    })
}

/// Whether Rust code searches the message of an error.
fn searches_rust(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let code: String = lines.filter(|line| !line.starts_with("//")).collect();
    let code: String = code.split_whitespace().collect();
    SEARCHES.iter().any(|search| code.contains(search))
}

#[test]
fn i11_no_statement_code_or_recipe_searches_the_words_of_an_error() {
    let mut looked = 0;
    let documents = files("docs", "md").into_iter();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let documents = documents.chain([readme]).map(|path| {
        let text = shown_code(&fs::read_to_string(&path).unwrap());
        (path, text)
    });
    let statements = files("sql", "sql").into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    });
    for (path, text) in statements.chain(documents) {
        looked += 1;
        let line = text.lines().find(|line| searches_sql(line));
        assert_eq!(line, None, "{}", path.display());
    }
    let core = files("crates/core/src", "rs");
    for path in files("src", "rs").into_iter().chain(core) {
        looked += 1;
        let is_test = path.components().any(|part| {
            ["tests", "tests.rs", "pg_test"].contains(&&*part.as_os_str().to_string_lossy())
        });
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        assert!(is_test || !searches_rust(code), "{}", path.display());
    }
    assert!(looked > 100, "only {looked} files");
    for asks in [
        "WHERE o.last_error LIKE 'may have been sent: %'",
        "IF SQLERRM ~ '^[a-z]' THEN",
        "starts_with(o.last_error, 'claim')",
    ] {
        assert!(searches_sql(asks), "{asks}");
    }
    for does_not in [
        "UPDATE outbox SET state = 'error', last_error = 'lease expired', n = 1",
        "-- last_error LIKE 'x'",
        "starts_with(c.claimed_by, 'mailroom worker/')",
    ] {
        assert!(!searches_sql(does_not), "{does_not}");
    }
    assert!(searches_rust(
        "if error\n    .message()\n    .contains(\"quota\") {"
    ));
    assert!(!searches_rust("message.body.contains('x')"));
}
