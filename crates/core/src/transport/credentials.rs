//! The file with a provider's credentials: `mailroom.credentials_file`. Pure.
//!
//! One `name = value` a line; empty lines and lines that start with `#` are passed over. The file is judged as
//! the key file is. Nothing here may show a value, nor a name that is none: an API key in a line of its own may
//! well have an equals sign in it.

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::secret_file::{self, Fingerprint, Problem as FileProblem};

/// Every name there is. `secret` may come twice, during a rotation; the others once.
const FIELDS: [&str; 10] = [
    "access_key_id",
    "api_key",
    "configuration_set",
    "domain",
    "message_stream",
    "region",
    "secret",
    "secret_access_key",
    "session_token",
    "token",
];
/// The one that may come twice.
const ROTATING: &str = "secret";

/// What one file holds. No `Debug` that shows anything, and zeroed when dropped.
pub struct Credentials {
    values: Vec<(&'static str, Zeroizing<String>)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(_)")
    }
}

/// Why there are no credentials.
#[derive(Debug)]
pub struct Error {
    /// The file in question.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a credentials file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file itself.
    File(FileProblem),
    /// A line, counted from 1, is neither `name = value`, nor empty, nor a comment; or its name is unknown.
    Line(usize),
    /// The value in this line, of this name, is empty, quoted, or not printable ASCII without spaces.
    Value(usize, &'static str),
    /// This line has a name that was in as many lines before as it may be.
    Again(usize, &'static str),
}

impl From<FileProblem> for Problem {
    fn from(problem: FileProblem) -> Self {
        Self::File(problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(problem) => problem.fmt(f),
            Self::Line(line) => write!(f, "has no \"name = value\" of a known name in line {line}"),
            Self::Value(line, name) => {
                write!(f, "has no usable value for {name} in line {line}")
            }
            Self::Again(line, name) => write!(f, "has {name} once too often in line {line}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "credentials file \"{}\" {}",
            self.path.display(),
            self.problem
        )
    }
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self.problem {
            Problem::File(FileProblem::Missing | FileProblem::NotAFile) => {
                "Set mailroom.credentials_file to a file that the server's user can read and others cannot."
            }
            Problem::File(FileProblem::Unreadable) => {
                "Let the server's user read the file, as its owner or, if root is, as a member of its group, and pass the directories above."
            }
            Problem::File(FileProblem::ForeignOwner) => {
                "Make the server's user, or root, the file's owner."
            }
            Problem::File(FileProblem::TooOpen { .. }) => {
                "Set mode 0600 or stricter if the server's user owns it, 0640 or stricter if root does. If others may have read it, have the provider issue new credentials."
            }
            Problem::File(FileProblem::Io(_)) => {
                "Look at the disk and at the directory of the file."
            }
            Problem::File(FileProblem::TooLarge) | Problem::Line(_) => {
                "Write one \"name = value\" a line, with the names that docs/operations.md lists."
            }
            Problem::Value(..) => "Write printable ASCII without spaces and without quotes.",
            Problem::Again(..) => "Only secret may come twice, while it is being rotated.",
        }
    }
}

impl Credentials {
    /// Reads and judges the file at `path`.
    ///
    /// # Errors
    /// Any [`Problem`], with the path.
    pub fn load(path: &Path) -> Result<(Self, Fingerprint), Error> {
        let fail = |problem| Error {
            path: path.to_owned(),
            problem,
        };
        let (content, fingerprint) =
            secret_file::read(path).map_err(|problem| fail(problem.into()))?;
        Ok((Self::parse(&content).map_err(fail)?, fingerprint))
    }

    /// What a file with this content holds; an empty one holds nothing, which is no problem yet.
    ///
    /// # Errors
    /// The first [`Problem`] found.
    pub fn parse(content: &[u8]) -> Result<Self, Problem> {
        let mut values = Vec::new();
        for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let (number, line) = (index + 1, line.trim_ascii());
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (name, value) = split(line).ok_or(Problem::Line(number))?;
            let value = judge(value).ok_or(Problem::Value(number, name))?;
            let before = values.iter().filter(|(known, _)| *known == name).count();
            if before > usize::from(name == ROTATING) {
                return Err(Problem::Again(number, name));
            }
            values.push((name, value));
        }
        Ok(Self { values })
    }

    /// The values of a field, in the file's order.
    pub fn all(&self, field: &str) -> impl Iterator<Item = &str> {
        self.values
            .iter()
            .filter(move |(name, _)| *name == field)
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a field.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.all(field).next()
    }

    /// The first value of a field that a sender cannot do without.
    ///
    /// # Errors
    /// Which one is missing.
    pub fn require(&self, field: &str) -> Result<&str, String> {
        self.get(field).ok_or_else(|| self.lacks(field))
    }

    /// How it is said that a field is missing.
    pub fn lacks(&self, field: &str) -> String {
        format!("the credentials file has no line \"{field} = …\"")
    }
}

fn split(line: &[u8]) -> Option<(&'static str, &[u8])> {
    let equals = line.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&line[..equals], &line[equals + 1..]);
    let name = name.trim_ascii();
    let name = FIELDS.iter().find(|field| field.as_bytes() == name)?;
    Some((name, value.trim_ascii()))
}

fn judge(value: &[u8]) -> Option<Zeroizing<String>> {
    let quoted = value.starts_with(b"\"") || value.starts_with(b"'");
    if value.is_empty() || quoted || !value.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    // One allocation, of the right size: nothing is left behind unzeroed.
    std::str::from_utf8(value)
        .ok()
        .map(|value| Zeroizing::new(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn problem(content: &str) -> Problem {
        Credentials::parse(content.as_bytes()).err().unwrap()
    }

    #[test]
    fn names_and_values() {
        let content = "# ours\r\n\n api_key =  SG.a=b== \r\nsecret=1\nsecret = 2\n";
        let credentials = Credentials::parse(content.as_bytes()).unwrap();
        assert_eq!(credentials.get("api_key"), Some("SG.a=b=="));
        assert_eq!(credentials.all("secret").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(credentials.get("token"), None);
        assert_eq!(
            credentials.require("token").unwrap_err(),
            "the credentials file has no line \"token = …\""
        );
        assert!(Credentials::parse(b"").is_ok());
    }

    #[test]
    fn problems_name_line_and_field_only() {
        for (content, expected) in [
            ("SG.hunter2==", Problem::Line(1)),
            ("\nhunter2", Problem::Line(2)),
            ("API_KEY = hunter2", Problem::Line(1)),
            ("token =", Problem::Value(1, "token")),
            ("token = \"hunter2\"", Problem::Value(1, "token")),
            ("token = hunter2 hunter2", Problem::Value(1, "token")),
            ("token = hunter2\rhunter2", Problem::Value(1, "token")),
            ("token = hünter2", Problem::Value(1, "token")),
            ("token = hunter2\0", Problem::Value(1, "token")),
            ("token = 1\n\ntoken = 2", Problem::Again(3, "token")),
            (
                "secret = 1\nsecret = 2\nsecret = 3",
                Problem::Again(3, "secret"),
            ),
        ] {
            let found = problem(content);
            assert_eq!(found, expected, "{content:?}");
            assert!(!format!("{found} {found:?}").contains("unter2"));
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let credentials = Credentials::parse(b"token = hunter2").unwrap();
        assert_eq!(format!("{credentials:?}"), "Credentials(_)");
    }

    #[test]
    fn the_file_is_judged_before_it_is_read() {
        let path =
            std::env::temp_dir().join(format!("mailroom-credentials-{}", std::process::id()));
        std::fs::write(&path, "token = hunter2").unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o640);
        let error = Credentials::load(&path).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "credentials file \"{}\" is open to others, mode 0640",
                path.display()
            )
        );
        set_mode(0o600);
        let (credentials, fingerprint) = Credentials::load(&path).unwrap();
        assert_eq!(credentials.get("token"), Some("hunter2"));
        assert!(Fingerprint::at(&path) == Some(fingerprint));
        std::fs::remove_file(&path).unwrap();
        let error = Credentials::load(&path).err().unwrap();
        assert_eq!(error.problem, Problem::File(FileProblem::Missing));
    }

    proptest! {
        #[test]
        fn any_content_parses_or_names_a_line(content in "((secret|token|api_key|x) ?=? ?[ -~ü]{0,10}\n){0,5}") {
            match Credentials::parse(content.as_bytes()) {
                Ok(credentials) => {
                    prop_assert!(credentials.values.iter().all(|(_, value)| value.bytes().all(|b| b.is_ascii_graphic())));
                }
                Err(Problem::Line(line) | Problem::Value(line, _) | Problem::Again(line, _)) => {
                    prop_assert!((1..=content.lines().count()).contains(&line));
                }
                Err(Problem::File(_)) => prop_assert!(false, "no file was read"),
            }
        }
    }
}
