//! Parses replies. Pure.
//!
//! The parser accepts more than RFC 5321 requires, up to a limit. The text of a reply may echo the message: only the
//! extensions and a queue id are read from it, and no other part of it leaves this module.

use std::fmt;

/// Bytes of a line, its end included: a server may send 512.
pub(super) const LINE_MAX: usize = 4096;
/// Lines of a reply: those to EHLO have some twenty.
const LINES_MAX: usize = 128;
/// Maximum bytes of a queue id: shorter than a signed token, which the server could echo.
const ID_MAX: usize = 64;
/// Minimum bytes of a queue id that is the only word after `Ok`, as Amazon SES writes it.
const LONE_ID_MIN: usize = 16;

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Three digits.
    pub code: u16,
    /// The enhanced code (RFC 3463), unless its class contradicts `code`.
    pub enhanced: Option<Enhanced>,
    /// The text of each line, without codes.
    lines: Vec<String>,
}

/// As in `5.1.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enhanced {
    class: u8,
    /// E.g. 1: the address.
    pub subject: u16,
    /// E.g. 1: the mailbox does not exist.
    pub detail: u16,
}

/// The line is not part of an SMTP reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// The lines of a reply received so far.
#[derive(Default)]
pub(super) struct Partial {
    code: u16,
    enhanced: Option<Enhanced>,
    lines: Vec<String>,
}

impl Partial {
    /// Adds a line without its line end; returns the reply when this was its last line.
    ///
    /// # Errors
    /// When the line cannot be part of this reply.
    pub fn add(&mut self, line: &[u8]) -> Result<Option<Reply>, Garbled> {
        let (digits, rest) = line.split_at_checked(3).ok_or(Garbled)?;
        let is_code = matches!(digits[0], b'2'..=b'5') && digits.iter().all(u8::is_ascii_digit);
        let code = digits
            .iter()
            .fold(0, |code, digit| code * 10 + u16::from(digit & 15));
        let is_same = self.lines.is_empty() || self.code == code;
        if !is_code || !is_same || self.lines.len() >= LINES_MAX {
            return Err(Garbled);
        }
        let is_last = match rest.first() {
            None | Some(b' ') => true,
            Some(b'-') => false,
            Some(_) => return Err(Garbled),
        };
        let text = String::from_utf8_lossy(rest.get(1..).unwrap_or_default());
        let (enhanced, text) = Enhanced::split(&text, code);
        self.code = code;
        self.enhanced = self.enhanced.or(enhanced);
        self.lines.push(text.to_owned());
        Ok(is_last.then(|| Reply {
            code,
            enhanced: self.enhanced,
            lines: std::mem::take(&mut self.lines),
        }))
    }
}

impl Reply {
    /// 2yz: the command succeeded.
    pub fn is_done(&self) -> bool {
        self.code / 100 == 2
    }

    /// 4yz: the command failed, and may be repeated later.
    pub fn is_temporary(&self) -> bool {
        self.code / 100 == 4
    }

    /// 5yz: the command failed, and is not to be repeated.
    pub fn is_final(&self) -> bool {
        self.code / 100 == 5
    }

    /// Whether the server announces that it closes the connection.
    pub fn is_closing(&self) -> bool {
        self.code == 421
    }

    /// The text of each line.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// As in `smtp 550 5.1.1`.
    pub fn reason(&self) -> String {
        match self.enhanced {
            Some(enhanced) => format!("smtp {} {enhanced}", self.code),
            None => format!("smtp {}", self.code),
        }
    }

    /// The queue id of an accepted message, if the reply has it in a known form: `queued as …` (Postfix and many others),
    /// `id=…` (Exim), `Ok …` alone (Amazon SES), `… Message accepted` (Sendmail).
    pub fn queue_id(&self) -> Option<String> {
        let text = self.lines.last()?.trim();
        let first = |text: &str| {
            let word = text.split([' ', ';', ',', ')']).next().unwrap_or_default();
            word.trim_end_matches('.').to_owned()
        };
        let lower = text.to_ascii_lowercase();
        let behind = |words: &str| {
            let at = lower.find(words)?;
            text.get(at + words.len()..).map(first)
        };
        let alone = || {
            let (ok, word) = text.split_once(' ')?;
            let is_alone = ok.eq_ignore_ascii_case("ok") && word.len() >= LONE_ID_MIN;
            (is_alone && !word.contains(' ')).then(|| word.to_owned())
        };
        let before = || {
            let (word, rest) = text.split_once(' ')?;
            rest.starts_with("Message accepted")
                .then(|| word.to_owned())
        };
        behind("queued as ")
            .or_else(|| behind("id="))
            .or_else(alone)
            .or_else(before)
            .filter(|id| is_id(id))
    }
}

fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(fits)
}

impl Enhanced {
    /// The enhanced code of a line, if its class fits the code, and the text after it.
    fn split(text: &str, code: u16) -> (Option<Self>, &str) {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match Self::parse(word, code) {
            Some(enhanced) => (Some(enhanced), rest),
            None => (None, text),
        }
    }

    fn parse(word: &str, code: u16) -> Option<Self> {
        let number = |part: &str| {
            let is_number =
                (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse::<u16>().ok()).flatten()
        };
        let mut parts = word.split('.').map(number);
        let (class, subject, detail) = (parts.next()??, parts.next()??, parts.next()??);
        let class = u8::try_from(class).ok()?;
        (parts.next().is_none() && u16::from(class) == code / 100).then_some(Self {
            class,
            subject,
            detail,
        })
    }

    /// Whether it is `x.subject.detail` for one of these.
    pub fn is_any(self, known: &[(u16, u16)]) -> bool {
        known.contains(&(self.subject, self.detail))
    }
}

impl fmt::Display for Enhanced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.class, self.subject, self.detail)
    }
}
