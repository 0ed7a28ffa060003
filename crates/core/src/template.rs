//! Templates: checks a template when it is stored, and renders it for one mail. Pure.
//!
//! The language is Jinja as implemented by MiniJinja, without the constructs that mail does not need (`dialect`). A
//! template can use its variables only: there is no loader, so no other template and no file, and no function that
//! inspects the environment. A value that a user may have written, such as a login, never becomes source. An error is a
//! [`TemplateError`], which names the place in the template and quotes the template, never a value.
//!
//! Limits keep a template or a message from using up the server's memory or time: [`SOURCE_MAX`] for the source of a
//! part, [`FUEL`] for the instructions that it executes, [`OUTPUT_MAX`] for its result, and a meter (`meter`) for the
//! values that its instructions create, compare and write.

mod depth;
mod dialect;
mod locale;
mod meter;
mod plain_name;
mod refusal;
mod shipped;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, eval, make_string_output, parse,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use dialect::DialectChecker;
pub use locale::locales;
use meter::{AllowedNames, Meter};
/// The variables of a mail, and a converter from any serializable value.
pub use minijinja::{Value, value::Serde};
use refusal::Refusal;
pub use shipped::{BUILTIN, BUILTIN_LOCALE};

use crate::line;

/// Maximum octets of a part's source.
pub const SOURCE_MAX: usize = 256 * 1024;
/// Maximum octets of a rendered part: ten times what the larger mail clients show without cutting.
pub const OUTPUT_MAX: usize = 1024 * 1024;
/// Maximum octets of a line, RFC 5322 section 2.1.1.
pub const SUBJECT_MAX: usize = 998;
/// Maximum octets of a message's variables as JSON: four times the maximum of a rendered part.
pub const VARIABLES_MAX: usize = 4 * 1024 * 1024;
/// Maximum instructions that one part may execute. The built-in templates take about 50; a table of 1,000 rows with
/// five columns takes about 30,000.
const FUEL: u64 = 200_000;
/// Maximum depth of recursive loops, which keeps the stack far below PostgreSQL's limit.
const DEPTH: usize = 32;
/// Octets of compiled parts that are kept, with their sources, until the process ends, because the compiled form borrows
/// from the source. Parts beyond that are compiled at each use.
const KEPT_MAX: usize = 32 << 20;
/// Octets of a compiled part without its instructions, at least: what the compiler reserves, and the entry of the map.
const COMPILED_MIN: usize = 16 << 10;
/// Octets of an instruction with its place in the source; vectors that grow have twice the room.
const INSTRUCTION: usize = 2 * (size_of::<Instruction<'_>>() + 40);
/// Maximum characters of the template that an error quotes.
const QUOTE_MAX: usize = 60;

/// A part of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One line; not escaped.
    Subject,
    /// Not escaped.
    Text,
    /// Escaped, unless a value is marked as safe.
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

    /// The name of the column.
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

/// An error in a template, or in rendering it for a message. It contains no value, so it may be shown to everyone who
/// may read the template.
#[derive(Debug, PartialEq, Eq)]
pub struct TemplateError {
    part: Part,
    /// The line, from 1; `None` for an error about the whole part.
    line: Option<usize>,
    /// The column in characters, from 1.
    column: Option<usize>,
    what: String,
}

impl fmt::Display for TemplateError {
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

impl TemplateError {
    fn whole(part: Part, what: impl Into<String>) -> Self {
        Self {
            part,
            line: None,
            column: None,
            what: what.into(),
        }
    }

    /// A construct that the dialect refuses.
    fn refused(part: Part, refusal: &Refusal) -> Self {
        Self {
            part,
            line: Some(refusal.span.start_line.into()),
            column: Some(usize::from(refusal.span.start_col) + 1),
            what: refusal.what.clone(),
        }
    }

    /// `explain` returns the text of an error, given the piece of the template that it is about.
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
fn compile<'s>(
    part: Part,
    source: &'s str,
    names: &AllowedNames,
) -> Result<Instructions<'s>, TemplateError> {
    if source.len() > SOURCE_MAX {
        let what = format!(
            "has {} octets, at most {SOURCE_MAX} are allowed",
            source.len()
        );
        return Err(TemplateError::whole(part, what));
    }
    let refused = |refusal| TemplateError::refused(part, &refusal);
    depth::check_depth(source).map_err(refused)?;
    let tree = parse(source, "template", SyntaxConfig::default())
        .map_err(|error| TemplateError::at(part, source, &error, explain_syntax))?;
    let tree = DialectChecker { names }.template(&tree).map_err(refused)?;
    let mut generator = CodeGenerator::new("template", source);
    generator.compile_stmt(&tree);
    Ok(generator.finish().0)
}

/// Compiled templates by their source.
pub struct Engine {
    environment: Environment<'static>,
    meter: Meter,
    names: AllowedNames,
    /// By source, so that a changed template is never missed.
    compiled: HashMap<&'static str, Instructions<'static>>,
    /// Octets of `compiled`, as [`octets`] counts them.
    kept: usize,
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// An engine without compiled templates.
    pub fn new() -> Self {
        let mut environment = Environment::empty();
        // A missing variable counts as false in a condition, so that a template can do without it. Written, it is an
        // error.
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        // Needed for the place of an error.
        environment.set_debug(true);
        let meter = Meter::default();
        let names = meter::register(&mut environment, &meter);
        Self {
            environment,
            meter,
            names,
            compiled: HashMap::new(),
            kept: 0,
        }
    }

    /// Checks the syntax of a part, and that every filter, test and function in it exists.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self, part: Part, source: &str) -> Result<(), TemplateError> {
        compile(part, source, &self.names).map(drop)
    }

    /// Renders a part with these variables, an object.
    ///
    /// # Errors
    /// An error in the part or in its result.
    pub fn render(
        &mut self,
        part: Part,
        source: &str,
        variables: &Value,
    ) -> Result<String, TemplateError> {
        // A panic, caused by a capacity overflow for example, must fail this message only.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(instructions) = self.compiled.get(source) {
                return self.run(part, source, instructions, variables);
            }
            let instructions = compile(part, source, &self.names)?;
            let rendered = self.run(part, source, &instructions, variables);
            self.keep(part, source, octets(&instructions));
            rendered
        }));
        outcome.unwrap_or_else(|_| Err(TemplateError::whole(part, "cannot be rendered")))
    }

    /// Keeps a compiled part, if there is room.
    fn keep(&mut self, part: Part, source: &str, octets: usize) {
        if self.kept.saturating_add(octets) > KEPT_MAX {
            return;
        }
        let source: &'static str = Box::leak(source.into());
        self.kept += octets;
        if let Ok(instructions) = compile(part, source, &self.names) {
            self.compiled.insert(source, instructions);
        }
    }

    fn run(
        &self,
        part: Part,
        source: &str,
        instructions: &Instructions<'_>,
        variables: &Value,
    ) -> Result<String, TemplateError> {
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
        .map_err(|error| TemplateError::at(part, source, &error, explain_failure))?;
        fit(part, rendered)
    }
}

/// What a compiled part and its source take.
fn octets(compiled: &Instructions<'_>) -> usize {
    let count = (0..).take_while(|n| compiled.get(*n).is_some()).count();
    COMPILED_MIN + compiled.source().len() + count * INSTRUCTION
}

/// Checks that the result fits the part.
fn fit(part: Part, rendered: String) -> Result<String, TemplateError> {
    if rendered.len() > part.output_max() {
        let what = format!("renders to more than {} octets", part.output_max());
        return Err(TemplateError::whole(part, what));
    }
    if rendered.contains('\0') {
        return Err(TemplateError::whole(part, "renders to a NUL character"));
    }
    if part == Part::Subject {
        if rendered.trim().is_empty() {
            return Err(TemplateError::whole(part, "renders to nothing"));
        }
        if line::first_control(&rendered).is_some() {
            return Err(TemplateError::whole(
                part,
                "renders to more than one line, or to a control character",
            ));
        }
    }
    Ok(rendered)
}

/// The error text of the engine. When a template is stored there are no values that it could quote.
fn explain_syntax(error: &Error, _piece: Option<&str>) -> String {
    error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// Replaces the error text of the engine, which may quote values.
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

#[cfg(test)]
mod tests;
