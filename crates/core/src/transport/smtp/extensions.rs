//! The extensions of a server, from its reply to EHLO.

/// The extensions that the server offers in its reply to EHLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub pipelining: bool,
    pub starttls: bool,
    pub eight_bit: bool,
    pub utf8: bool,
    pub dsn: bool,
    pub size: bool,
    /// Maximum bytes of a message, if SIZE has a limit.
    pub size_limit: Option<usize>,
    pub plain: bool,
    pub login: bool,
    pub xoauth2: bool,
}

impl Extensions {
    /// Reads the lines of a reply to EHLO; the first line holds the server's name.
    pub fn read(lines: &[String]) -> Self {
        let mut known = Self::default();
        for line in lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            // Some servers send `AUTH=LOGIN` in addition to, or instead of, `AUTH LOGIN`.
            let mut words = line.split([' ', '=']).filter(|word| !word.is_empty());
            match words.next() {
                Some("PIPELINING") => known.pipelining = true,
                Some("STARTTLS") => known.starttls = true,
                Some("8BITMIME") => known.eight_bit = true,
                Some("SMTPUTF8") => known.utf8 = true,
                Some("DSN") => known.dsn = true,
                Some("SIZE") => {
                    known.size = true;
                    let limit = words.next().and_then(|limit| limit.parse().ok());
                    known.size_limit = limit.filter(|limit| *limit > 0);
                }
                Some("AUTH") => words.for_each(|mechanism| match mechanism {
                    "PLAIN" => known.plain = true,
                    "LOGIN" => known.login = true,
                    "XOAUTH2" => known.xoauth2 = true,
                    _ => {}
                }),
                _ => {}
            }
        }
        known
    }
}
