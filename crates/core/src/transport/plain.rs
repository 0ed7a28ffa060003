//! Makes a plain text from HTML, for messages that have no text body. Pure.
//!
//! It accepts any input and takes time proportional to its length. [`tree`] parses as browsers do; this file says which
//! elements are shown and where lines break, and [`writer`] writes the text. Hidden elements, styles and scripts are left
//! out; the target of a link follows its text in parentheses.

mod links;
mod nodes;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

pub use links::links;
use nodes::{Element, Node, Step};
use writer::Writer;

/// Elements whose content is not shown, or not as text.
const HIDDEN: [&str; 16] = [
    "audio", "canvas", "datalist", "head", "iframe", "noembed", "noframes", "noscript", "object",
    "script", "style", "svg", "template", "textarea", "title", "video",
];
/// Elements with an empty line before and after.
const PARAGRAPHS: [&str; 16] = [
    "blockquote",
    "dir",
    "figure",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "listing",
    "menu",
    "ol",
    "p",
    "pre",
    "table",
    "ul",
];
/// Elements that begin and end a line: those that HTML's rules for rendering display as blocks.
const BLOCKS: [&str; 30] = [
    "address",
    "article",
    "aside",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "footer",
    "form",
    "header",
    "hgroup",
    "html",
    "legend",
    "li",
    "main",
    "nav",
    "optgroup",
    "option",
    "search",
    "section",
    "summary",
    "tr",
    "xmp",
];
const LISTS: [&str; 4] = ["dir", "menu", "ol", "ul"];

/// The text of this HTML; empty if it has none.
pub fn from_html(html: &str) -> String {
    let tree = tree::parse(html);
    let mut writer = Writer::default();
    // The number of the next item of each open list; `None` if its items have no numbers.
    let mut lists: Vec<Option<i32>> = Vec::new();
    tree.walk(|step| match step {
        Step::Begin(Node::Text(text)) => {
            writer.text(text);
            true
        }
        Step::Begin(Node::Element(element)) => {
            let is_shown = !is_hidden(element);
            if is_shown {
                begin(element, &mut writer, &mut lists);
            }
            is_shown
        }
        Step::End(element) => {
            end(element, &mut writer, &mut lists);
            true
        }
    });
    writer.finish()
}

fn is(element: &Element, names: &[&str]) -> bool {
    names.contains(&element.name())
}

/// Empty lines, line breaks or neither before and after an element.
fn breaks(element: &Element, lists: usize) -> usize {
    if is(element, &LISTS) && lists > 0 {
        // Within an item of another list.
        1
    } else if is(element, &PARAGRAPHS) {
        2
    } else {
        let is_block = is(element, &BLOCKS)
            || matches!(
                display(element).as_deref(),
                Some("block" | "flex" | "grid" | "list-item" | "table" | "table-row")
            );
        usize::from(is_block && !is(element, &["td", "th"]))
    }
}

fn begin(element: &Element, writer: &mut Writer, lists: &mut Vec<Option<i32>>) {
    writer.break_lines(breaks(element, lists.len()));
    let number = |name| {
        element
            .attribute(name)
            .and_then(|value| value.trim().parse().ok())
    };
    match element.name() {
        "a" => writer.begin_link(element.attribute("href").unwrap_or_default()),
        "br" => writer.line_break(),
        "hr" => {
            writer.break_lines(1);
            writer.put_all("---");
            writer.break_lines(1);
        }
        "img" => writer.put_all(element.attribute("alt").unwrap_or_default()),
        "ol" => lists.push(Some(number("start").unwrap_or(1))),
        "dir" | "menu" | "ul" => lists.push(None),
        "li" => match lists.last_mut() {
            Some(Some(next)) => {
                let here = number("value").unwrap_or(*next);
                *next = here.saturating_add(1);
                writer.begin_item(&format!("{here}."));
            }
            _ => writer.begin_item("-"),
        },
        "pre" | "listing" | "xmp" => writer.begin_preformatted(),
        "td" | "th" => writer.space(),
        _ => {}
    }
}

fn end(element: &Element, writer: &mut Writer, lists: &mut Vec<Option<i32>>) {
    match element.name() {
        "a" => writer.end_link(),
        "dir" | "menu" | "ol" | "ul" => drop(lists.pop()),
        "pre" | "listing" | "xmp" => writer.end_preformatted(),
        "td" | "th" => writer.space(),
        _ => {}
    }
    writer.break_lines(breaks(element, lists.len()));
}

/// Whether its content is hidden, as the preview text of mail templates is.
fn is_hidden(element: &Element) -> bool {
    is(element, &HIDDEN)
        || element.attribute("hidden").is_some()
        || display(element).as_deref() == Some("none")
}

/// The property `display` of its own style, in lower case.
fn display(element: &Element) -> Option<String> {
    let (_, value) = element
        .attribute("style")?
        .split(';')
        .filter_map(|declaration| declaration.split_once(':'))
        .rfind(|(property, _)| property.trim().eq_ignore_ascii_case("display"))?;
    // Without `!important`.
    let value = value.split('!').next().unwrap_or_default();
    Some(value.trim().to_ascii_lowercase())
}
