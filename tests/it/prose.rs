//! The book uses plain words, and I11: prose decides nothing. No statement and no code tests the text of a message, a
//! reason or an error: states, outcomes and flags are columns and enums. This searches the sources and the documents
//! for such tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Parts of names that stand for text for people.
const PROSE: [&str; 11] = [
    "error", "errors", "errmsg", "reason", "reasons", "message", "problem", "problems", "sqlerrm",
    "hint", "detail",
];

/// Operators and functions of SQL that search a text.
const LIKENESS: [&str; 10] = [
    "like", "ilike", "similar", "~", "~*", "!~", "!~*", "~~", "~~*", "^@",
];
const SQL_SEARCHES: [&str; 9] = [
    "starts_with",
    "strpos",
    "position",
    "substring",
    "regexp_match",
    "regexp_matches",
    "regexp_like",
    "regexp_count",
    "regexp_instr",
];

/// Methods of Rust that search a text.
const SEARCHES: [&str; 11] = [
    "contains",
    "starts_with",
    "ends_with",
    "find",
    "rfind",
    "strip_prefix",
    "strip_suffix",
    "matches",
    "split",
    "split_once",
    "eq_ignore_ascii_case",
];
/// Methods of Rust that return the same text.
const SAME: [&str; 11] = [
    "as_str",
    "as_ref",
    "as_deref",
    "as_bytes",
    "borrow",
    "clone",
    "to_ascii_lowercase",
    "to_lowercase",
    "to_string",
    "trim",
    "unwrap_or_default",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Sql,
    Rust,
}

/// Words, operators and single characters, each with its line; of a literal only its quote is kept.
fn tokens(source: &str, language: Language) -> Vec<(usize, String)> {
    let (comment, quote) = match language {
        Language::Sql => ("--", '\''),
        Language::Rust => ("//", '"'),
    };
    let is_operator = |c: char| "~!<>=*|&^@:".contains(c);
    let mut found = Vec::new();
    for (line, text) in source.lines().enumerate() {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if rest.starts_with(comment) {
                break;
            } else if first == quote {
                let mut escaped = false;
                let end = rest.char_indices().skip(1).find(|&(_, c)| {
                    let ends = c == quote && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                found.push((line + 1, quote.to_string()));
                rest = end.map_or("", |(end, _)| &rest[end + 1..]);
                continue;
            } else if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if is_operator(first) {
                rest.find(|c| !is_operator(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                found.push((line + 1, rest[..length].to_lowercase()));
            }
            rest = &rest[length..];
        }
    }
    found
}

fn is_prose(token: &str) -> bool {
    // `errors_in_a_row` is a number, `message_id` is no message: the last part of a name says what it is.
    token
        .rsplit('_')
        .next()
        .is_some_and(|last| PROSE.contains(&last))
}

/// The lines that test the text of a message.
fn questions(source: &str, language: Language) -> Vec<usize> {
    let tokens = tokens(source, language);
    let at = |place: usize| tokens.get(place).map_or("", |(_, token)| token.as_str());
    let is_question = |place: usize| match language {
        Language::Sql => is_sql_question(&at, place),
        Language::Rust => is_rust_question(&at, place),
    };
    let mut lines: Vec<usize> = (0..tokens.len())
        .filter(|&place| is_question(place))
        .map(|place| tokens[place].0)
        .collect();
    lines.dedup();
    lines
}

fn is_sql_question<'a>(at: &impl Fn(usize) -> &'a str, place: usize) -> bool {
    if SQL_SEARCHES.contains(&at(place)) && at(place + 1) == "(" {
        let mut depth = 0;
        return (place + 1..)
            .take_while(|&inner| {
                depth += i32::from(at(inner) == "(") - i32::from(at(inner) == ")");
                depth > 0 && !at(inner).is_empty()
            })
            .any(|inner| is_prose(at(inner)));
    }
    if !is_prose(at(place)) {
        return false;
    }
    let mut next = place + 1;
    if at(next) == "[" {
        next = (next..next + 8).find(|&end| at(end) == "]").unwrap_or(next) + 1;
    }
    while at(next) == ")" {
        next += 1;
    }
    if at(next) == "::" {
        next += 2;
    }
    if at(next) == "not" {
        next += 1;
    }
    if LIKENESS.contains(&at(next)) {
        return true;
    }
    // The token before the name, which may be qualified by its table.
    let mut before = place;
    while before >= 2 && at(before - 1) == "." {
        before -= 2;
    }
    let before = before.checked_sub(1).map_or("", at);
    match at(next) {
        // An element of an array with such a name is another value.
        "when" => before == "case" && next == place + 1,
        "<>" | "!=" => at(next + 1) == "'",
        "in" => at(next + 1) == "(" && at(next + 2) == "'",
        // After any other token it is an assignment.
        "=" => {
            at(next + 1) == "'"
                && ["where", "and", "or", "when", "if", "not", "on", "("].contains(&before)
        }
        _ => false,
    }
}

fn is_rust_question<'a>(at: &impl Fn(usize) -> &'a str, place: usize) -> bool {
    if !is_prose(at(place)) {
        return false;
    }
    let mut next = place + 1;
    if at(next) == "(" && at(next + 1) == ")" {
        next += 2;
    }
    while at(next) == "."
        && SAME.contains(&at(next + 1))
        && at(next + 2) == "("
        && at(next + 3) == ")"
    {
        next += 4;
    }
    let is_compared = ["==", "!="].contains(&at(next)) && at(next + 1) == "\"";
    let is_searched = at(next) == "." && SEARCHES.contains(&at(next + 1)) && at(next + 2) == "(";
    let is_matched = at(next) == "{" && at(next + 1) == "\"";
    is_compared || is_searched || is_matched
}

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

#[test]
fn the_book_says_who_does_what() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let mut seen = 0;
    for path in files("docs", "md").into_iter().chain(top) {
        let text = fs::read_to_string(&path).unwrap();
        let found = unclear(&text);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
        seen += 1;
    }
    assert!(seen > 50, "only {seen} pages");
    assert_eq!(
        unclear("Nobody knows, `a::somebody_else` does."),
        ["Nobody"]
    );
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

#[test]
fn i11_no_statement_code_or_recipe_asks_for_the_words_of_a_message() {
    let mut asked = Vec::new();
    let mut looked = 0;
    let mut look = |path: &Path, text: &str, language| {
        looked += 1;
        for line in questions(text, language) {
            let shown = text
                .lines()
                .nth(line - 1)
                .unwrap_or_default()
                .trim()
                .to_owned();
            asked.push(format!("{}:{line}: {shown}", path.display()));
        }
    };
    for path in files("sql", "sql") {
        look(&path, &fs::read_to_string(&path).unwrap(), Language::Sql);
    }
    let core = files("crates/core/src", "rs");
    for path in files("src", "rs").into_iter().chain(core) {
        let text = fs::read_to_string(&path).unwrap();
        let mut parts = path.components();
        let is_test = parts.any(|part| {
            let name = part.as_os_str();
            name == "tests" || name == "tests.rs" || name == "pg_test.rs"
        });
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        look(&path, if is_test { "" } else { code }, Language::Rust);
    }
    let documents = files("docs", "md").into_iter();
    for path in documents.chain([Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")]) {
        let code = shown_code(&fs::read_to_string(&path).unwrap());
        look(&path, &code, Language::Sql);
    }
    assert!(looked > 100, "only {looked} files");
    assert!(
        asked.is_empty(),
        "what decides belongs in a column or an enum:\n{}",
        asked.join("\n")
    );
}

#[test]
fn questions_are_told_from_assignments_and_from_names() {
    for asks in [
        "WHERE a.error LIKE 'may have been sent: %'",
        "WHEN bad.reason NOT ILIKE '%x%' THEN 1",
        "IF problem ~ '^[a-z]' THEN",
        "(last_error)::text LIKE pattern",
        "errors[1] !~ 'x'",
        "starts_with(o.last_error, 'claim')",
        "position('x' IN SQLERRM)",
        "CASE v.reason\n    WHEN 'token expired' THEN 1 END",
        "WHERE o.last_error = 'lease expired'",
        "reason IN ('a', 'b')",
        "error <> 'x'",
    ] {
        assert_eq!(questions(asks, Language::Sql).len(), 1, "{asks}");
    }
    for does_not in [
        "UPDATE outbox SET state = 'error', last_error = 'lease expired', n = 1",
        "RAISE USING MESSAGE = 'no', HINT = 'Do it.'",
        "WHERE state = 'error' AND message_id = 'x' AND kind LIKE 'a%'",
        "regexp_replace(error, 'x', '[token]')",
        "-- error LIKE 'x'",
        "starts_with(c.claimed_by, 'mailroom worker/')",
        "mailroom_mark_error(1, 'no', error => 'x')",
        "CASE WHEN reason IS NOT NULL THEN 'cancelled' END",
    ] {
        assert_eq!(questions(does_not, Language::Sql), [0; 0], "{does_not}");
    }
    for asks in [
        "if reason.contains(\"quota\") {",
        "error.message().starts_with(PREFIX)",
        "last_error.to_lowercase().find('x')",
        "if problem == \"none\" {",
        "match reason.as_str() { \"a\" => 1 }",
    ] {
        assert_eq!(questions(asks, Language::Rust).len(), 1, "{asks}");
    }
    for does_not in [
        "let reason = format!(\"{reason}\");",
        "warning!(\"the reason.contains(\\\"x\\\")\")",
        "message.body.contains('x')",
        "// reason.contains(\"x\")",
        "if code == \"MessageRejected\" {",
    ] {
        assert_eq!(questions(does_not, Language::Rust), [0; 0], "{does_not}");
    }
}
