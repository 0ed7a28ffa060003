//! Makes a plain text from HTML, for messages that have no text body. Pure.
//!
//! It is written for the HTML of mail templates. It accepts any input and takes time proportional to its length. Hidden
//! elements, styles and scripts are left out; the target of a link follows its text in parentheses.

mod entities;
#[cfg(test)]
mod tests;

/// Elements whose content is not shown. All of these have end tags; `head`, whose end tag may be left out, contains nothing
/// else but elements without content.
const UNREAD: [&str; 7] = [
    "title", "script", "style", "template", "noscript", "object", "svg",
];
/// Of those, the elements whose content is not markup.
const RAW: [&str; 3] = ["title", "script", "style"];
/// Elements with an empty line before and after.
const PARAGRAPHS: [&str; 12] = [
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "table",
    "blockquote",
    "pre",
];
/// Elements that begin and end a line.
const BLOCKS: [&str; 14] = [
    "address", "article", "aside", "body", "div", "dd", "dl", "dt", "footer", "header", "li",
    "main", "section", "tr",
];
/// Elements that end an open `p` besides [`PARAGRAPHS`] and [`BLOCKS`].
const ENDS_OF_P: [&str; 5] = ["center", "form", "hr", "td", "th"];
/// Elements without content.
const VOID: [&str; 8] = ["area", "br", "col", "hr", "img", "input", "link", "meta"];

/// The text of this HTML; empty if it has none.
pub fn from_html(html: &str) -> String {
    let mut writer = Writer::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        writer.text(&rest[..at]);
        rest = &rest[at..];
        match Tag::read(rest) {
            Read::Text => {
                writer.text("<");
                rest = &rest[1..];
            }
            Read::Nothing(length) => rest = &rest[length..],
            Read::Tag(tag, length) => {
                rest = &rest[length..];
                if tag.opens() && RAW.contains(&tag.name.as_str()) {
                    rest = past_raw(rest, &tag.name);
                } else {
                    writer.tag(&tag);
                }
            }
        }
    }
    writer.text(rest);
    writer.finish()
}

/// The HTML after the end tag of an element whose content is not markup.
fn past_raw<'h>(html: &'h str, name: &str) -> &'h str {
    let mut rest = html;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        let is_it = rest
            .get(..name.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(name));
        if is_it {
            return rest.find('>').map_or("", |end| &rest[end + 1..]);
        }
    }
    ""
}

/// One tag.
struct Tag<'h> {
    /// In lower case.
    name: String,
    /// Between the name and the end of the tag.
    attributes: &'h str,
    is_end: bool,
}

/// What follows a `<`.
enum Read<'h> {
    /// No markup: the `<` is text.
    Text,
    /// A comment or declaration of so many bytes.
    Nothing(usize),
    /// A tag of so many bytes.
    Tag(Tag<'h>, usize),
}

impl<'h> Tag<'h> {
    fn read(html: &'h str) -> Read<'h> {
        let through = |end: &str| html.find(end).map_or(html.len(), |at| at + end.len());
        if html.starts_with("<!--") {
            return Read::Nothing(through("-->"));
        }
        if html.starts_with("<!") || html.starts_with("<?") {
            return Read::Nothing(through(">"));
        }
        let is_end = html.starts_with("</");
        let inside = &html[1 + usize::from(is_end)..];
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Read::Text;
        }
        let end = end_of_tag(inside);
        let length = html.len() - inside.len() + (end + 1).min(inside.len());
        let inside = &inside[..end];
        let name_end = inside
            .find(|c: char| c.is_ascii_whitespace() || c == '/')
            .unwrap_or(inside.len());
        let tag = Tag {
            name: inside[..name_end].to_ascii_lowercase(),
            attributes: &inside[name_end..],
            is_end,
        };
        Read::Tag(tag, length)
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }

    /// Whether content follows.
    fn opens(&self) -> bool {
        !self.is_end && !self.is(&VOID) && !self.attributes.ends_with('/')
    }

    /// Whether it ends a `p` without an end tag: a block begins, or the element around the `p` ends.
    fn ends_p(&self) -> bool {
        if self.name == "p" {
            return !self.is_end;
        }
        self.is(&PARAGRAPHS) || self.is(&BLOCKS) || self.is(&ENDS_OF_P)
    }

    /// The value of an attribute with its character references replaced.
    fn attribute(&self, wanted: &str) -> Option<String> {
        let mut rest = self.attributes;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if rest.is_empty() {
                return None;
            }
            let end = rest
                .find(|c: char| c.is_ascii_whitespace() || c == '=')
                .unwrap_or(rest.len());
            let name = &rest[..end];
            rest = rest[end..].trim_start();
            let Some(value) = rest.strip_prefix('=') else {
                continue;
            };
            let value = value.trim_start();
            let (value, after) = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let value = &value[1..];
                    value.split_once(quote).unwrap_or((value, ""))
                }
                _ => value.split_at(
                    value
                        .find(|c: char| c.is_ascii_whitespace())
                        .unwrap_or(value.len()),
                ),
            };
            if name.eq_ignore_ascii_case(wanted) {
                return Some(entities::replace(value));
            }
            rest = after;
        }
    }

    /// Whether its content is hidden, as the preview text of mail templates is.
    fn hides(&self) -> bool {
        self.is(&UNREAD)
            || self.attribute("style").is_some_and(|style| {
                let style: String = style.split_ascii_whitespace().collect();
                style.to_ascii_lowercase().contains("display:none")
            })
    }
}

/// The position of the `>` that ends this tag; a `>` in a quoted value does not.
fn end_of_tag(inside: &str) -> usize {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in inside.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '>' => return at,
            // A quote that does not begin a value is an ordinary character.
            None if (c == '"' || c == '\'') && before == '=' => quote = Some(c),
            None => {}
        }
        if !c.is_ascii_whitespace() {
            before = c;
        }
    }
    inside.len()
}

/// Turns text and tags into plain text.
#[derive(Default)]
struct Writer {
    text: String,
    /// The length of `text` without the white space at its end.
    end: usize,
    /// Line breaks to write before the next word.
    breaks: usize,
    /// Whether to write a space before the next word.
    space: bool,
    /// Open `pre` elements: white space is kept.
    preformatted: usize,
    /// The hidden element, and the number of open elements with its name.
    hidden: Option<(String, usize)>,
    /// The target of the open link, and the position of its text.
    link: Option<(String, usize)>,
}

impl Writer {
    fn text(&mut self, html: &str) {
        if html.is_empty() || self.hidden.is_some() {
            return;
        }
        for c in entities::replace(html).chars() {
            match c {
                '\n' if self.preformatted > 0 => self.breaks = (self.breaks + 1).min(2),
                ' ' | '\t' if self.preformatted > 0 && !self.text.is_empty() => self.put(c),
                c if c.is_ascii_whitespace() => self.space = true,
                // Soft hyphens, and the invisible characters that templates pad the preview text with.
                '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{34f}' => {}
                c if c.is_control() => {}
                '\u{a0}' => self.put(' '),
                c => self.put(c),
            }
        }
    }

    fn put(&mut self, c: char) {
        if self.breaks > 0 && !self.text.is_empty() {
            self.text.truncate(self.end);
            self.text.extend(std::iter::repeat_n('\n', self.breaks));
        } else if self.space && !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        self.breaks = 0;
        self.space = false;
        self.text.push(c);
        if !c.is_whitespace() {
            self.end = self.text.len();
        }
    }

    fn put_all(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            self.put(c);
        }
    }

    fn break_lines(&mut self, lines: usize) {
        self.breaks = self.breaks.max(lines);
        self.space = false;
    }

    fn tag(&mut self, tag: &Tag<'_>) {
        if self.stays_hidden(tag) {
            return;
        }
        if tag.opens() && tag.hides() {
            self.hidden = Some((tag.name.clone(), 1));
            return;
        }
        if tag.is(&PARAGRAPHS) {
            self.break_lines(2);
        } else if tag.is(&BLOCKS) {
            self.break_lines(1);
        }
        match (tag.name.as_str(), tag.is_end) {
            ("br", _) => {
                self.breaks = (self.breaks + 1).min(2);
                self.space = false;
            }
            ("hr", false) => {
                self.break_lines(1);
                self.put_all("---");
                self.break_lines(1);
            }
            ("li", false) => {
                self.put_all("-");
                self.space = true;
            }
            ("td" | "th", _) => self.space = true,
            ("pre", false) => self.preformatted += 1,
            ("pre", true) => self.preformatted = self.preformatted.saturating_sub(1),
            ("img", false) => self.put_all(&tag.attribute("alt").unwrap_or_default()),
            ("a", false) => {
                // A link ends where the next one begins, so that no text is read for more than one.
                self.end_link();
                let target = tag.attribute("href").unwrap_or_default();
                // A line break removes white space at the end.
                self.link = Some((target.trim().to_owned(), self.end));
            }
            ("a", true) => self.end_link(),
            _ => {}
        }
    }

    /// Whether this tag is within a hidden element.
    fn stays_hidden(&mut self, tag: &Tag<'_>) -> bool {
        let Some((name, depth)) = &mut self.hidden else {
            return false;
        };
        if name == "p" && tag.ends_p() {
            self.hidden = None;
            return false;
        }
        if *name == tag.name {
            if tag.is_end {
                *depth -= 1;
            } else if tag.opens() {
                *depth += 1;
            }
        }
        if *depth == 0 {
            self.hidden = None;
        }
        true
    }

    fn end_link(&mut self) {
        let Some((target, begin)) = self.link.take() else {
            return;
        };
        let scheme = target.split_once(':').map(|(scheme, _)| scheme);
        let shown = match scheme.map(str::to_ascii_lowercase).as_deref() {
            Some("http" | "https") => target.as_str(),
            Some("mailto") => target[7..].split('?').next().unwrap_or_default(),
            _ => return,
        };
        let text = self.text.get(begin..self.end).unwrap_or_default().trim();
        if text == shown || shown.is_empty() {
            return;
        }
        if text.is_empty() {
            self.put_all(shown);
        } else {
            // A space at the end of the text follows the target.
            let space = std::mem::replace(&mut self.space, true);
            self.put_all("(");
            self.put_all(shown);
            self.put_all(")");
            self.space = space;
        }
    }

    fn finish(mut self) -> String {
        self.text.truncate(self.end);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}
