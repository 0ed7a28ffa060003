//! Words, spaces and line breaks, as they become a text.

/// What may begin the target of a link that is shown.
const MAILTO: &str = "mailto:";

/// Turns text and breaks into plain text.
#[derive(Default)]
pub(super) struct Writer {
    text: String,
    /// The length of `text` without the white space at its end.
    end: usize,
    /// Line breaks to write before the next word.
    breaks: usize,
    /// Whether to write a space before the next word.
    space: bool,
    /// Open preformatted elements: white space is kept.
    preformatted: usize,
    /// Where the mark of the last item ends.
    after_mark: usize,
    /// The target of the open link, and the position of its text.
    link: Option<(String, usize)>,
}

impl Writer {
    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' if self.preformatted > 0 => self.breaks = (self.breaks + 1).min(2),
                ' ' | '\t' if self.preformatted > 0 && !self.text.is_empty() => self.put(c),
                c if c.is_ascii_whitespace() => self.space = true,
                // Soft hyphens are shown only where a line is wrapped. A byte order mark is nothing within a text. Other
                // characters without width are part of words: Persian and emoji need them.
                '\u{ad}' | '\u{feff}' => {}
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

    /// A text whose white space is part of it.
    pub(super) fn put_all(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            self.put(c);
        }
    }

    /// A space before the next word.
    pub(super) fn space(&mut self) {
        self.space = true;
    }

    /// At least so many line breaks before the next word; 0 changes nothing.
    pub(super) fn break_lines(&mut self, lines: usize) {
        if lines > 0 && !(self.space && self.after_mark == self.text.len()) {
            self.breaks = self.breaks.max(lines);
            self.space = false;
        }
    }

    /// One more line break before the next word, but at most an empty line.
    pub(super) fn line_break(&mut self) {
        self.breaks = (self.breaks + 1).min(2);
        self.space = false;
    }

    /// Its first block follows the mark on the same line.
    pub(super) fn begin_item(&mut self, mark: &str) {
        self.put_all(mark);
        self.space = true;
        self.after_mark = self.text.len();
    }

    pub(super) fn begin_preformatted(&mut self) {
        self.preformatted += 1;
    }

    pub(super) fn end_preformatted(&mut self) {
        self.preformatted = self.preformatted.saturating_sub(1);
    }

    pub(super) fn begin_link(&mut self, target: &str) {
        // A link ends where the next one begins, so that no text is read for more than one.
        self.end_link();
        // A line break removes white space at the end.
        self.link = Some((target.trim().to_owned(), self.end));
    }

    pub(super) fn end_link(&mut self) {
        let Some((target, begin)) = self.link.take() else {
            return;
        };
        let Some(shown) = shown_target(&target) else {
            return;
        };
        let text = self.text.get(begin..self.end).unwrap_or_default().trim();
        if text == shown || shown.is_empty() {
            return;
        }
        if text.is_empty() {
            self.put_all(&shown);
            return;
        }
        // White space and line breaks at the end of the text follow the target.
        let space = std::mem::replace(&mut self.space, true);
        let breaks = std::mem::take(&mut self.breaks);
        self.put_all("(");
        self.put_all(&shown);
        self.put_all(")");
        self.space = space;
        self.breaks = breaks;
    }

    pub(super) fn finish(mut self) -> String {
        self.text.truncate(self.end);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}

/// What is shown of the target of a link: a web address as it is, the addresses of `mailto:`, nothing of others.
fn shown_target(target: &str) -> Option<String> {
    let starts_with = |scheme: &str| {
        target
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if starts_with("http:") || starts_with("https:") {
        return Some(target.to_owned());
    }
    if !starts_with(MAILTO) {
        return None;
    }
    let addresses = target[MAILTO.len()..].split('?').next().unwrap_or_default();
    Some(decode(addresses).unwrap_or_else(|| addresses.to_owned()))
}

/// Replaces `%40` and the like; `None` if that gives no UTF-8.
fn decode(encoded: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'%')
            .then(|| after.get(..2))
            .flatten()
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(hex.unwrap_or(byte));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(decoded).ok()
}
