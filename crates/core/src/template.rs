//! Templates: checking them when they are stored, rendering them for one mail. Pure.
//!
//! The language is Jinja as MiniJinja speaks it, less what mail does not need (`dialect`). A template is given its
//! variables and nothing else: there is no loader, so no other template and no file, and no function that looks
//! around. What a reader may have written (a login, say) is a value and never becomes source. Whatever goes wrong
//! comes back as a [`Problem`], which names the place in the template and quotes the template, never a value.
//!
//! Bounds, so that no template and no message can take the server's memory or keep a session busy: [`SOURCE_MAX`] on
//! a part's source, [`FUEL`] on the instructions it runs, [`OUTPUT_MAX`] on what it renders to, and a meter (`meter`)
//! on all that its instructions make, compare and write on the way.

mod depth;
mod dialect;
mod meter;
mod refusal;
mod shipped;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::machinery::{CodeGenerator, Instructions, eval, make_string_output, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use dialect::Dialect;
use meter::{Meter, Words};
/// Variables of a mail, and what makes them of anything that can be serialised.
pub use minijinja::{Value, value::Serde};
use refusal::Refusal;
pub use shipped::{BUILTIN, BUILTIN_LOCALE};

/// Octets of one part's source.
pub const SOURCE_MAX: usize = 256 * 1024;
/// Octets that one part may render to: ten times what the larger mail readers show without cutting.
pub const OUTPUT_MAX: usize = 1024 * 1024;
/// RFC 5322 section 2.1.1 leaves a line 998 octets.
pub const SUBJECT_MAX: usize = 998;
/// Octets of a message's variables, as JSON: what a part may render to, four times.
pub const VARIABLES_MAX: usize = 4 * 1024 * 1024;
/// Instructions that one part may run. The shipped templates take some fifty; a table of a thousand rows with five
/// columns takes some thirty thousand.
const FUEL: u64 = 200_000;
/// Loops inside loops that call themselves; keeps the stack far below what PostgreSQL allows itself.
const DEPTH: usize = 32;
/// Octets of source whose compiled form is kept, for as long as the process lives: what was compiled borrows from it.
/// Beyond that a part is compiled each time it is used.
const KEPT_MAX: usize = 16 << 20;
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

    /// Something that the dialect does not have.
    fn refused(part: Part, refusal: &Refusal) -> Self {
        Self {
            part,
            line: Some(refusal.span.start_line.into()),
            column: Some(usize::from(refusal.span.start_col) + 1),
            what: refusal.what.clone(),
        }
    }

    /// `explain` says what an error means, given the piece of the template that it is about.
    fn at(
        part: Part,
        source: &str,
        error: &Error,
        explain: impl Fn(&Error, Option<&str>) -> String,
    ) -> Self {
        let range = error.range();
        let column = range
            .clone()
            .and_then(|range| source.get(..range.start))
            .map(|before| before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let piece = range
            .and_then(|range| source.get(range))
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

/// Compiles a part.
fn compile<'s>(part: Part, source: &'s str, words: &Words) -> Result<Instructions<'s>, Problem> {
    if source.len() > SOURCE_MAX {
        let what = format!(
            "has {} octets, at most {SOURCE_MAX} are allowed",
            source.len()
        );
        return Err(Problem::whole(part, what));
    }
    let refused = |refusal| Problem::refused(part, &refusal);
    depth::check_depth(source).map_err(refused)?;
    let tree = parse(source, "template", SyntaxConfig::default())
        .map_err(|error| Problem::at(part, source, &error, explain_syntax))?;
    let tree = Dialect { words }.template(&tree).map_err(refused)?;
    let mut generator = CodeGenerator::new("template", source);
    generator.compile_stmt(&tree);
    Ok(generator.finish().0)
}

/// Compiled templates, for as long as their source stays the same.
pub struct Engine {
    environment: Environment<'static>,
    meter: Meter,
    words: Words,
    /// By source, so that no change can be missed.
    compiled: HashMap<&'static str, Instructions<'static>>,
    /// Octets of source in there.
    kept: usize,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// An engine with nothing compiled.
    pub fn new() -> Self {
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        // For the place of an error.
        environment.set_debug(true);
        let meter = Meter::default();
        let words = meter::furnish(&mut environment, &meter);
        Self {
            environment,
            meter,
            words,
            compiled: HashMap::new(),
            kept: 0,
        }
    }

    /// Whether a part can be used at all: its syntax, and that every filter, test and function it names exists.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self, part: Part, source: &str) -> Result<(), Problem> {
        compile(part, source, &self.words).map(drop)
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
            if let Some(instructions) = self.compiled.get(source) {
                return self.run(part, source, instructions, variables);
            }
            let instructions = compile(part, source, &self.words)?;
            let rendered = self.run(part, source, &instructions, variables);
            self.keep(part, source);
            rendered
        }));
        outcome.unwrap_or_else(|_| Err(Problem::whole(part, "cannot be rendered")))
    }

    /// Keeps a part that was used, if there is room.
    fn keep(&mut self, part: Part, source: &str) {
        if self.kept.saturating_add(source.len()) > KEPT_MAX {
            return;
        }
        let source: &'static str = Box::leak(source.into());
        self.kept += source.len();
        if let Ok(instructions) = compile(part, source, &self.words) {
            self.compiled.insert(source, instructions);
        }
    }

    fn run(
        &self,
        part: Part,
        source: &str,
        instructions: &Instructions<'_>,
        variables: &Value,
    ) -> Result<String, Problem> {
        let escape = match part {
            Part::Subject | Part::Text => AutoEscape::None,
            Part::Html => AutoEscape::Html,
        };
        let mut rendered = String::new();
        self.meter.refill();
        eval(
            &self.environment,
            instructions,
            variables.clone(),
            &BTreeMap::new(),
            &mut make_string_output(&mut rendered),
            escape,
        )
        .map(drop)
        .map_err(|error| Problem::at(part, source, &error, explain_failure))?;
        fit(part, rendered)
    }
}

/// What was rendered, if it fits its part.
fn fit(part: Part, rendered: String) -> Result<String, Problem> {
    if rendered.len() > part.output_max() {
        let what = format!("renders to more than {} octets", part.output_max());
        return Err(Problem::whole(part, what));
    }
    if rendered.contains('\0') {
        return Err(Problem::whole(part, "renders to a NUL character"));
    }
    if part == Part::Subject {
        if rendered.trim().is_empty() {
            return Err(Problem::whole(part, "renders to nothing"));
        }
        if rendered
            .chars()
            .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
        {
            return Err(Problem::whole(
                part,
                "renders to more than one line, or to a control character",
            ));
        }
    }
    Ok(rendered)
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
        ErrorKind::OutOfFuel => "takes too much time or memory".to_owned(),
        kind => kind.to_string(),
    };
    match piece {
        Some(piece) => format!("{what} in \"{piece}\""),
        None => what,
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

#[cfg(test)]
mod tests;
