//! Templates: checking them when they are stored, rendering them for one mail. Pure.
//!
//! The language is Jinja as MiniJinja speaks it. A template is given its variables and nothing else: there is no
//! loader, so no other template and no file, and no function that looks around. What a reader may have
//! written (a login, say) is a value and never becomes source. Whatever goes wrong comes back as a
//! [`Problem`], which names the place in the template and quotes the template, never a value.
//!
//! Bounds: [`SOURCE_MAX`] on a part's source, [`FUEL`] on the instructions it runs, [`OUTPUT_MAX`] on what it
//! renders to. Values in between are not counted; whoever may write templates is trusted with memory, as
//! whoever may write SQL is.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::machinery::{Instruction, get_compiled_template};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Template, UndefinedBehavior, Value,
};

/// Octets of one part's source.
pub const SOURCE_MAX: usize = 256 * 1024;
/// Octets that one part may render to: ten times what the larger mail readers show without cutting.
pub const OUTPUT_MAX: usize = 1024 * 1024;
/// RFC 5322 section 2.1.1 leaves a line 998 octets.
pub const SUBJECT_MAX: usize = 998;
/// Instructions that one part may run. The shipped templates take some fifty; a table of a thousand rows with five
/// columns takes some thirty thousand.
const FUEL: u64 = 200_000;
/// Loops inside loops that call themselves; keeps the stack far below what PostgreSQL allows itself.
const DEPTH: usize = 32;
/// Compiled parts that a session keeps.
const CACHED_MAX: usize = 192;
/// Characters of the template that an error quotes.
const QUOTE_MAX: usize = 60;

/// A part of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One line, never escaped.
    Subject,
    /// Never escaped.
    Text,
    /// Escaped unless a value was marked as safe.
    Html,
}

impl Part {
    /// The part with this column name.
    pub fn named(column: &str) -> Option<Self> {
        match column {
            "subject" => Some(Self::Subject),
            "body_text" => Some(Self::Text),
            "body_html" => Some(Self::Html),
            _ => None,
        }
    }

    /// The name of its column.
    pub fn column(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Text => "body_text",
            Self::Html => "body_html",
        }
    }

    fn output_max(self) -> usize {
        match self {
            Self::Subject => SUBJECT_MAX,
            Self::Text | Self::Html => OUTPUT_MAX,
        }
    }
}

/// What is wrong with a template, or with what it makes of a message. Safe to show to anybody who may know the
/// template: holds no value.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    part: Part,
    /// From 1; `None` when it is about the part as a whole.
    line: Option<usize>,
    /// From 1, in characters.
    column: Option<usize>,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.part.column())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Problem {
    fn whole(part: Part, what: impl Into<String>) -> Self {
        Self {
            part,
            line: None,
            column: None,
            what: what.into(),
        }
    }

    /// `explain` says what an error means, given the piece of the template that it is about.
    fn at(part: Part, error: &Error, explain: impl Fn(&Error, Option<&str>) -> String) -> Self {
        let source = error.template_source();
        let range = error.range();
        let column = source
            .zip(range.clone())
            .and_then(|(source, range)| source.get(..range.start))
            .map(|before| before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let piece = source
            .zip(range)
            .and_then(|(source, range)| source.get(range))
            .map(|piece| {
                piece
                    .chars()
                    .take_while(|c| !c.is_control())
                    .take(QUOTE_MAX)
                    .collect::<String>()
            })
            .filter(|piece| !piece.is_empty());
        Self {
            part,
            line: error.line(),
            column,
            what: explain(error, piece.as_deref()),
        }
    }
}

/// Compiled templates, for as long as their source stays the same.
pub struct Engine {
    // A part's name is a letter for its kind and then its source: two sources can never be taken for one another.
    environment: Environment<'static>,
    cached: usize,
}

impl Engine {
    /// An engine with nothing compiled.
    pub fn new() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|name| {
            if name.starts_with('h') {
                AutoEscape::Html
            } else {
                AutoEscape::None
            }
        });
        environment.set_formatter(format_value);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        // For the place of an error.
        environment.set_debug(true);
        // These make much out of little, or show all there is.
        for filter in ["format", "indent", "pprint", "batch", "slice"] {
            environment.remove_filter(filter);
        }
        for function in ["debug", "dict", "namespace"] {
            environment.remove_global(function);
        }
        Self {
            environment,
            cached: 0,
        }
    }

    /// Whether a part can be used at all: its syntax, and that every filter, test and function it names exists.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&mut self, part: Part, source: &str) -> Result<(), Problem> {
        let template = self.compile(part, source)?;
        let mut state = template.new_state();
        let instructions = &get_compiled_template(&template).instructions;
        let mut index = 0;
        while let Some(instruction) = instructions.get(index) {
            let unknown = match instruction {
                Instruction::ApplyFilter(name, ..) => is_unknown(
                    state.apply_filter(name, &[]).err(),
                    ErrorKind::UnknownFilter,
                )
                .then_some(("filter", *name)),
                Instruction::PerformTest(name, ..) => {
                    is_unknown(state.perform_test(name, &[]).err(), ErrorKind::UnknownTest)
                        .then_some(("test", *name))
                }
                // A loop that is `recursive` is called by this name.
                Instruction::CallFunction(name, _)
                    if *name != "loop"
                        && state.env().globals().all(|(known, _)| known != *name) =>
                {
                    Some(("function", *name))
                }
                _ => None,
            };
            if let Some((sort, name)) = unknown {
                return Err(Problem {
                    part,
                    line: instructions.get_line(index),
                    column: instructions
                        .get_span(index)
                        .map(|span| usize::from(span.start_col) + 1),
                    what: format!("there is no {sort} \"{name}\""),
                });
            }
            index += 1;
        }
        Ok(())
    }

    /// What a part becomes for these variables, an object.
    ///
    /// # Errors
    /// What is wrong with the part or with what it renders to.
    pub fn render(
        &mut self,
        part: Part,
        source: &str,
        variables: &Value,
    ) -> Result<String, Problem> {
        // A panic in there, a capacity that overflows say, is a bad template's and must stay with its message.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let template = self.compile(part, source)?;
            render(&template, part, variables)
        }));
        outcome.unwrap_or_else(|_| {
            *self = Self::new();
            Err(Problem::whole(part, "cannot be rendered"))
        })
    }

    fn compile(&mut self, part: Part, source: &str) -> Result<Template<'_, '_>, Problem> {
        if source.len() > SOURCE_MAX {
            let what = format!(
                "has {} octets, at most {SOURCE_MAX} are allowed",
                source.len()
            );
            return Err(Problem::whole(part, what));
        }
        let name = format!("{}{source}", if part == Part::Html { 'h' } else { 't' });
        if self.environment.get_template(&name).is_err() {
            if self.cached >= CACHED_MAX {
                self.environment.clear_templates();
                self.cached = 0;
            }
            let compiled = self
                .environment
                .add_template_owned(name.clone(), source.to_owned());
            compiled.map_err(|error| Problem::at(part, &error, explain_syntax))?;
            self.cached += 1;
        }
        self.environment
            .get_template(&name)
            .map_err(|error| Problem::at(part, &error, explain_syntax))
    }
}

fn render(template: &Template<'_, '_>, part: Part, variables: &Value) -> Result<String, Problem> {
    let overflowed = Cell::new(false);
    let mut rendered = Vec::new();
    let bounded = Bounded {
        into: &mut rendered,
        room: part.output_max(),
        overflowed: &overflowed,
    };
    let outcome = template
        .render_captured_to(variables.clone(), bounded)
        .map(drop);
    if overflowed.get() {
        let what = format!("renders to more than {} octets", part.output_max());
        return Err(Problem::whole(part, what));
    }
    outcome.map_err(|error| Problem::at(part, &error, explain_failure))?;
    let rendered = String::from_utf8(rendered)
        .map_err(|_| Problem::whole(part, "renders to something that is not text"))?;
    if rendered.contains('\0') {
        return Err(Problem::whole(part, "renders to a NUL character"));
    }
    if part == Part::Subject {
        if rendered.trim().is_empty() {
            return Err(Problem::whole(part, "renders to nothing"));
        }
        if rendered.chars().any(char::is_control) {
            return Err(Problem::whole(
                part,
                "renders to more than one line, or to a control character",
            ));
        }
    }
    Ok(rendered)
}

fn is_unknown(error: Option<Error>, kind: ErrorKind) -> bool {
    error.is_some_and(|error| error.kind() == kind && error.detail().is_none())
}

/// At the time of storing there are no values, so the engine's own words are only about the template.
fn explain_syntax(error: &Error, _piece: Option<&str>) -> String {
    error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// The engine's own words may quote values: none of them.
fn explain_failure(error: &Error, piece: Option<&str>) -> String {
    let what = match error.kind() {
        ErrorKind::UndefinedError => "undefined or null".to_owned(),
        ErrorKind::OutOfFuel => "takes too long".to_owned(),
        kind => kind.to_string(),
    };
    match piece {
        Some(piece) => format!("{what} in \"{piece}\""),
        None => what,
    }
}

/// Writes a value into a part. A null is refused like a variable that is not there: nobody wants to be addressed
/// as "none". In HTML the five characters with a meaning are escaped; unlike the engine's own escaping this one
/// leaves slashes alone, for the sake of those who look for links in the source.
fn format_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.is_none() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let written = match state.auto_escape() {
        AutoEscape::Html if !value.is_safe() => {
            let mut escaped = String::new();
            for c in value.to_string().chars() {
                match c {
                    '&' => escaped.push_str("&amp;"),
                    '<' => escaped.push_str("&lt;"),
                    '>' => escaped.push_str("&gt;"),
                    '"' => escaped.push_str("&quot;"),
                    '\'' => escaped.push_str("&#39;"),
                    c => escaped.push(c),
                }
            }
            out.write_str(&escaped)
        }
        _ => out.write_str(&value.to_string()),
    };
    written.map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// A writer that has had enough at some point.
struct Bounded<'a> {
    into: &'a mut Vec<u8>,
    room: usize,
    overflowed: &'a Cell<bool>,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.into.len() + piece.len() > self.room {
            self.overflowed.set(true);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.into.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The locales in which to look for a template, best first: the wanted one, each shorter form of it, then the
/// default and its shorter forms. Tags are compared in lower case, with hyphens.
pub fn locales(wanted: Option<&str>, default: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for tag in wanted.into_iter().chain([default]) {
        let tag = tag.to_lowercase().replace('_', "-");
        let mut rest = tag.as_str();
        while !rest.is_empty() {
            if found.iter().all(|known| known != rest) {
                found.push(rest.to_owned());
            }
            rest = rest.rsplit_once('-').map_or("", |(shorter, _)| shorter);
        }
    }
    found
}

/// A template that comes with the library.
pub struct Builtin {
    /// The kind of mail.
    pub kind: &'static str,
    /// The source of the subject.
    pub subject: &'static str,
    /// The source of the text body.
    pub body_text: &'static str,
    /// The source of the HTML body.
    pub body_html: &'static str,
}

/// The locale of the templates that come with the library.
pub const BUILTIN_LOCALE: &str = "en";

/// The templates that come with the library.
pub const BUILTIN: [Builtin; 2] = [
    Builtin {
        kind: "activation",
        subject: "Activate your account",
        body_text: include_str!("template/activation.txt"),
        body_html: include_str!("template/activation.html"),
    },
    Builtin {
        kind: "password_recovery",
        subject: "Reset your password",
        body_text: include_str!("template/password_recovery.txt"),
        body_html: include_str!("template/password_recovery.html"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::value::Serde;
    use proptest::prelude::*;

    fn render(part: Part, source: &str, variables: serde_json::Value) -> Result<String, String> {
        Engine::new()
            .render(part, source, &Value::from(Serde(variables)))
            .map_err(|problem| problem.to_string())
    }

    fn text(source: &str, variables: serde_json::Value) -> Result<String, String> {
        render(Part::Text, source, variables)
    }

    fn refused(part: Part, source: &str) -> String {
        let problem = Engine::new().check(part, source).unwrap_err();
        problem.to_string()
    }

    fn some(login: &str) -> serde_json::Value {
        serde_json::json!({ "login": login })
    }

    #[test]
    fn values_are_escaped_in_html_and_nowhere_else() {
        let hostile = r#"<script>"x" & 'y'</script>"#;
        assert_eq!(
            render(Part::Html, r#"<a title="{{ login }}">"#, some(hostile)).unwrap(),
            r#"<a title="&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/script&gt;">"#
        );
        for part in [Part::Text, Part::Subject] {
            assert_eq!(render(part, "{{ login }}", some(hostile)).unwrap(), hostile);
        }
        // In containers and through filters too, unless the template says that it is safe.
        let nested = serde_json::json!({ "l": ["<b>"], "o": {"<k>": "<v>"} });
        assert_eq!(
            render(
                Part::Html,
                "{{ l }}{{ o }}{{ l | join(', ') }}{{ l[0] | upper }}",
                nested
            )
            .unwrap(),
            "[&#39;&lt;b&gt;&#39;]{&#39;&lt;k&gt;&#39;: &#39;&lt;v&gt;&#39;}&lt;b&gt;&lt;B&gt;"
        );
        assert_eq!(
            render(Part::Html, "{{ login | safe }}", some("<b>")).unwrap(),
            "<b>"
        );
        assert_eq!(
            render(Part::Html, "{{ login | escape }}", some("<b>")).unwrap(),
            "&lt;b&gt;"
        );
    }

    #[test]
    fn a_value_is_never_taken_for_source() {
        for login in [
            "{{ 7 * 7 }}",
            "{% if true %}49{% endif %}",
            "{# gone #}",
            "{{ token }}",
        ] {
            let variables = serde_json::json!({ "login": login, "token": "secret" });
            for part in [Part::Subject, Part::Text, Part::Html] {
                assert_eq!(
                    render(part, "{{ login }}", variables.clone()).unwrap(),
                    login
                );
            }
        }
    }

    #[test]
    fn a_template_reaches_nothing_but_its_variables() {
        for (source, why) in [
            ("{% include 'a' %}", "include"),
            ("{% extends 'a' %}", "extends"),
            ("{% import 'a' as b %}", "import"),
            ("{% macro a() %}{% endmacro %}", "macro"),
        ] {
            assert!(refused(Part::Text, source).contains(why), "{source}");
        }
        for name in ["debug", "namespace", "dict", "open", "cycler", "lipsum"] {
            assert_eq!(
                refused(Part::Text, &format!("\n {{{{ {name}() }}}}")),
                format!("body_text, line 2, column 5: there is no function \"{name}\"")
            );
        }
        assert!(text("{{ self }}", some("a")).is_err());
        assert!(text("{{ login.__class__ }}", some("a")).is_err());
        assert!(text("{{ environ }}", some("a")).is_err());
    }

    #[test]
    fn a_broken_part_is_refused_with_its_place() {
        assert_eq!(
            refused(Part::Subject, "Hello {{ login"),
            "subject, line 1, column 10: unexpected end of input, expected end of variable block"
        );
        assert_eq!(
            refused(Part::Html, "<p>\n{% if login %}"),
            "body_html, line 2, column 13: unexpected end of input, expected end of block"
        );
        // In a branch that no message may ever take.
        assert_eq!(
            refused(
                Part::Text,
                "{% if false %}\n  {{ login | uper }}{% endif %}"
            ),
            "body_text, line 2, column 14: there is no filter \"uper\""
        );
        assert_eq!(
            refused(Part::Text, "{{ 1 is nice }}"),
            "body_text, line 1, column 9: there is no test \"nice\""
        );
        assert_eq!(
            refused(Part::Text, &"x".repeat(SOURCE_MAX + 1)),
            "body_text: has 262145 octets, at most 262144 are allowed"
        );
        let mut engine = Engine::new();
        for good in [
            "",
            "{{ login | default('you') | upper | replace('A', 'B') | urlencode }}",
            "{% for i in range(3) recursive %}{{ loop(i) }}{% endfor %}",
            "{% if a is defined and a is not none %}{% set b = a %}{{ b }}{% endif %}",
            "{{ 'x' if a else 'y' }}",
        ] {
            assert_eq!(engine.check(Part::Text, good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_failure_names_its_place_and_no_value() {
        let secret = serde_json::json!({ "login": "s3cret", "list": ["s3cret"], "number": 1, "nothing": null });
        for (source, why) in [
            (
                "Hi\n  {{ logn }}",
                "body_text, line 2, column 6: undefined or null in \"logn\"",
            ),
            (
                "{{ nothing }}",
                "body_text, line 1, column 4: undefined or null in \"nothing\"",
            ),
            (
                "{{ login.name }}",
                "body_text, line 1, column 4: undefined or null in \"login.name\"",
            ),
            (
                "{% if logn %}{% endif %}",
                "body_text, line 1, column 7: undefined or null in \"logn\"",
            ),
            (
                "{{ login + 1 }}",
                "body_text, line 1, column 4: invalid operation in \"login + 1\"",
            ),
            (
                "{{ login | int }}",
                "body_text, line 1, column 12: invalid operation in \"int\"",
            ),
            (
                "{{ login | abs }}",
                "body_text, line 1, column 12: invalid operation in \"abs\"",
            ),
            ("{{ login() }}", ""),
            ("{{ login.upper() }}", ""),
            ("{% for a, b in list %}{% endfor %}", ""),
            ("{{ list | join(1, 2, 3) }}", ""),
            ("{{ list | map(login) | list }}", ""),
            ("{{ list | sort(attribute=login) | first | int }}", ""),
            ("{{ [login] | sum }}", ""),
            ("{{ login * login }}", ""),
            ("{{ range(login) }}", ""),
        ] {
            let problem = text(source, secret.clone()).unwrap_err();
            assert!(!problem.contains("s3cret"), "{problem}");
            assert!(why.is_empty() || problem == why, "{problem}");
        }
    }

    #[test]
    fn null_is_refused_and_can_be_given_a_default() {
        let variables = serde_json::json!({ "name": null });
        assert_eq!(
            text("{{ name or 'you' }}", variables.clone()).unwrap(),
            "you"
        );
        assert_eq!(
            text("{{ name | default('you', true) }}", variables).unwrap(),
            "you"
        );
        assert_eq!(
            text("{{ name | default('you') }}", serde_json::json!({})).unwrap(),
            "you"
        );
        assert_eq!(
            text("{{ 'a' if false }}", serde_json::json!({})).unwrap(),
            ""
        );
    }

    #[test]
    fn what_never_ends_is_ended() {
        let endless =
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        assert!(
            text(endless, some("a"))
                .unwrap_err()
                .contains("takes too long")
        );
        let deep = "{% for a in [[[1]]] recursive %}{{ loop([a]) }}{% endfor %}";
        assert!(text(deep, some("a")).unwrap_err().starts_with("body_text"));
        let long = "{% for a in range(2000) %}{{ login * 1000 }}{% endfor %}";
        assert_eq!(
            text(long, some("a")).unwrap_err(),
            "body_text: renders to more than 1048576 octets"
        );
        assert!(text("{{ login * 10000000000 }}", some("abc")).is_err());
        assert!(text("{{ range(10000000000) | list }}", some("abc")).is_err());
    }

    #[test]
    fn a_subject_is_one_line() {
        for break_out in [
            "a\r\nBcc: b@example.com",
            "a\nb",
            "a\u{85}b",
            "a\tb",
            "a\u{7f}",
        ] {
            assert_eq!(
                render(Part::Subject, "{{ login }}", some(break_out)).unwrap_err(),
                "subject: renders to more than one line, or to a control character"
            );
        }
        assert_eq!(
            render(Part::Subject, "{{ login }}", some(" ")).unwrap_err(),
            "subject: renders to nothing"
        );
        assert_eq!(
            render(Part::Subject, "{{ login }}", some(&"ü".repeat(500))).unwrap_err(),
            "subject: renders to more than 998 octets"
        );
        assert!(render(Part::Subject, "{{ login }}", some(&"a".repeat(998))).is_ok());
    }

    #[test]
    fn a_compiled_part_is_found_by_its_source_and_its_kind() {
        let mut engine = Engine::new();
        let variables = Value::from(Serde(some("<b>")));
        for _ in 0..2 {
            assert_eq!(
                engine
                    .render(Part::Text, "{{ login }}", &variables)
                    .unwrap(),
                "<b>"
            );
            assert_eq!(
                engine
                    .render(Part::Html, "{{ login }}", &variables)
                    .unwrap(),
                "&lt;b&gt;"
            );
            assert_eq!(
                engine
                    .render(Part::Subject, "{{ login }}", &variables)
                    .unwrap(),
                "<b>"
            );
        }
        assert_eq!(engine.cached, 2);
        for n in 0..2 * CACHED_MAX {
            let source = format!("{n} {{{{ login }}}}");
            assert_eq!(
                engine.render(Part::Text, &source, &variables).unwrap(),
                format!("{n} <b>")
            );
            assert!(engine.cached <= CACHED_MAX);
        }
    }

    #[test]
    fn the_shipped_templates_hold_what_a_reader_needs() {
        let mut engine = Engine::new();
        for builtin in BUILTIN {
            let parts = [
                (Part::Subject, builtin.subject),
                (Part::Text, builtin.body_text),
                (Part::Html, builtin.body_html),
            ];
            let mut variables =
                serde_json::json!({ "login": "<alice>", "token": "T0KEN", "code": "01234" });
            for (part, source) in parts {
                assert_eq!(engine.check(part, source), Ok(()), "{}", builtin.kind);
                if part == Part::Subject {
                    continue;
                }
                let without_link = engine
                    .render(part, source, &Value::from(Serde(&variables)))
                    .unwrap();
                assert!(without_link.contains("T0KEN"), "{without_link}");
                assert!(!without_link.contains("href"), "{without_link}");
                assert!(!without_link.contains("until"), "{without_link}");
                variables["link"] = "https://example.com/recover?token=T0KEN&a=b".into();
                variables["expires_at"] = "2030-01-01 12:15 UTC".into();
                let with_link = engine
                    .render(part, source, &Value::from(Serde(&variables)))
                    .unwrap();
                let (name, link) = match part {
                    Part::Html => (
                        "&lt;alice&gt;",
                        "href=\"https://example.com/recover?token=T0KEN&amp;a=b\"",
                    ),
                    _ => ("<alice>", "\nhttps://example.com/recover?token=T0KEN&a=b\n"),
                };
                for needed in [name, link, "until 2030-01-01 12:15 UTC", "ignore this mail"] {
                    assert!(with_link.contains(needed), "{needed} in {with_link}");
                }
                let has_code = builtin.kind == "password_recovery";
                assert_eq!(with_link.contains("01234"), has_code);
                assert_eq!(without_link.contains("01234"), has_code);
                // Nothing is fetched, nothing runs.
                for unwanted in ["<img", "<script", "url(", "src=", "<link", "@import"] {
                    assert!(!with_link.contains(unwanted), "{unwanted}");
                }
                variables
                    .as_object_mut()
                    .unwrap()
                    .retain(|name, _| name != "link" && name != "expires_at");
            }
        }
    }

    #[test]
    fn locales_go_from_the_wanted_to_the_default() {
        for (wanted, default, expected) in [
            (None, "en", vec!["en"]),
            (Some("en"), "en", vec!["en"]),
            (Some("de"), "en", vec!["de", "en"]),
            (Some("pt_BR"), "en-GB", vec!["pt-br", "pt", "en-gb", "en"]),
            (
                Some("zh-Hant-TW"),
                "zh",
                vec!["zh-hant-tw", "zh-hant", "zh"],
            ),
            (Some(""), "", vec![]),
            (Some("--"), "en", vec!["--", "-", "en"]),
        ] {
            assert_eq!(locales(wanted, default), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_a_value_holds_the_html_around_it_stays(login in "[^\x00]{0,40}") {
            let page = render(Part::Html, "<p title=\"{{ login }}\">", some(&login)).unwrap();
            let inner = page.strip_prefix("<p title=\"").unwrap().strip_suffix("\">").unwrap();
            prop_assert!(!inner.contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn no_source_panics(source in "(\\{\\{|\\}\\}|\\{%|%\\}|for|in|if|set|login|\\||[ a-z0-9'\"().,+*~-]|\n){0,30}") {
            let mut engine = Engine::new();
            if engine.check(Part::Html, &source).is_ok() {
                let _ = engine.render(Part::Html, &source, &Value::from(Serde(some("a"))));
            }
        }
    }
}
