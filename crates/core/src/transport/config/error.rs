//! Errors in the transports file, without any of its values.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::secret_file::SecretFileProblem;

/// An error in the transports file: file, line, message and hint. It contains no value of the file.
#[derive(Debug)]
pub struct ConfigError {
    path: Option<PathBuf>,
    pub(super) line: Option<usize>,
    problem: String,
    hint: String,
}

impl ConfigError {
    /// An error in a line, counted from 1.
    pub(super) fn new(line: usize, problem: String, hint: impl Into<String>) -> Self {
        Self {
            path: None,
            line: Some(line),
            problem,
            hint: hint.into(),
        }
    }

    /// An error about the file itself.
    pub(super) fn of_file(problem: SecretFileProblem) -> Self {
        Self {
            path: None,
            line: None,
            problem: problem.to_string(),
            hint: file_hint(problem).to_owned(),
        }
    }

    /// Adds the name of the file.
    pub(super) fn in_file(self, path: &Path) -> Self {
        Self {
            path: Some(path.to_owned()),
            ..self
        }
    }

    /// The hint.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("transports file")?;
        if let Some(path) = &self.path {
            write!(f, " \"{}\"", path.display())?;
        }
        match self.line {
            Some(line) => write!(f, ", line {line}: {}", self.problem),
            None => write!(f, " {}", self.problem),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The hint for a file that cannot be used.
pub(super) fn file_hint(problem: SecretFileProblem) -> &'static str {
    match problem {
        SecretFileProblem::Missing | SecretFileProblem::NotAFile => {
            "Name a file that the server's user can read and others cannot. A relative name in the transports file counts from its directory."
        }
        SecretFileProblem::Unreadable => {
            "Let the server's user read the file, as its owner or, if root is, as a member of its group, and pass the directories above."
        }
        SecretFileProblem::ForeignOwner => "Make the server's user, or root, the file's owner.",
        SecretFileProblem::TooOpen { .. } => {
            "Set mode 0600 or stricter if the server's user owns it, 0640 or stricter if root does. If others may have read it, have the provider issue new credentials."
        }
        SecretFileProblem::TooLarge => "Keep the file below 64 kB.",
        SecretFileProblem::Io(_) => "Look at the disk and at the directory of the file.",
    }
}
