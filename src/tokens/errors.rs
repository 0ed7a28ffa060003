//! Errors of signing and verifying, as clients see them: never with contents of the key file.

use std::path::Path;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use mailroom_core::secret_file::SecretFileProblem;
use mailroom_core::token::key_file::{KeyFileError, KeyFileProblem};

/// Why tokens cannot be signed or verified, or a key cannot be made.
pub enum Error {
    /// A required argument is NULL.
    Null(&'static str),
    /// The secret has this many bytes, not 32.
    SecretLength(usize),
    /// The code is not five digits; it has this many characters.
    Code(usize),
    /// The action is unknown.
    Action,
    /// The key file cannot be used.
    KeyFile(KeyFileError),
    /// A role that is not a superuser asked for a new key.
    NotSuperuser,
}

impl From<KeyFileError> for Error {
    fn from(error: KeyFileError) -> Self {
        Self::KeyFile(error)
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        use PgSqlErrorCode::{ERRCODE_INVALID_PARAMETER_VALUE, ERRCODE_NULL_VALUE_NOT_ALLOWED};
        let invalid = |message: &'static str| {
            Self::new(ERRCODE_INVALID_PARAMETER_VALUE, message, function_name!())
        };
        match error {
            Error::Null(what) => Self::new(
                ERRCODE_NULL_VALUE_NOT_ALLOWED,
                format!("{what} must not be null"),
                function_name!(),
            )
            .set_detail("All parts of a token are signed.")
            .set_hint("Pass action, tokens.secret and, for password_recovery, tokens.code."),
            Error::SecretLength(bytes) => invalid("a token's secret has 32 bytes")
                .set_detail(format!("This one has {bytes}."))
                .set_hint("Use tokens.secret as it is."),
            Error::Code(characters) => invalid("a code is five decimal digits")
                .set_detail(format!("This one has {characters} characters."))
                .set_hint("Use tokens.code as it is."),
            // The value is not quoted, because it may be a token that was passed by mistake.
            Error::Action => invalid("unknown token action")
                .set_detail("Tokens of no other action can be signed or verified.")
                .set_hint("The actions are activation and password_recovery."),
            Error::NotSuperuser => Self::new(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "only a superuser may make a signing key",
                function_name!(),
            )
            .set_detail("It signs the tokens of all databases of the cluster.")
            .set_hint("Ask the administrator of the cluster."),
            Error::KeyFile(KeyFileError { path, problem }) => {
                let (code, message, hint) = explain(&path, &problem);
                Self::new(code, message, function_name!())
                    .set_detail(
                        "Tokens are signed and verified with the keys in mailroom.key_file.",
                    )
                    .set_hint(hint)
            }
        }
    }
}

/// Returns SQLSTATE, message and hint for a problem of the key file, never its contents. Long because it has one arm
/// for each problem.
pub fn explain(path: &Path, problem: &KeyFileProblem) -> (PgSqlErrorCode, String, String) {
    use PgSqlErrorCode::{
        ERRCODE_CONFIG_FILE_ERROR, ERRCODE_INSUFFICIENT_PRIVILEGE, ERRCODE_IO_ERROR,
        ERRCODE_UNDEFINED_FILE,
    };
    let file = format!("key file \"{}\"", path.display());
    let shape = "Write one key a line, 64 hexadecimal digits each, as \"openssl rand -hex 32\" prints them.";
    let shape = shape.to_owned();
    let problem = match problem {
        KeyFileProblem::MalformedLine { line } => {
            let message = format!("{file} is malformed in line {line}");
            return (ERRCODE_CONFIG_FILE_ERROR, message, shape);
        }
        KeyFileProblem::NoKey => {
            return (
                ERRCODE_CONFIG_FILE_ERROR,
                format!("{file} holds no key"),
                shape,
            );
        }
        KeyFileProblem::OfRoot | KeyFileProblem::Irreplaceable(_) => {
            let message = match problem {
                KeyFileProblem::Irreplaceable(kind) => format!("{file} cannot be replaced: {kind}"),
                _ => format!("{file} belongs to root and cannot be replaced by the server"),
            };
            let hint = "Put the new key into the first line where the file comes from, such as the Kubernetes secret; keep the lines below it.";
            return (ERRCODE_INSUFFICIENT_PRIVILEGE, message, hint.to_owned());
        }
        KeyFileProblem::File(SecretFileProblem::TooLarge) => {
            let message = format!("{file} is too large for a key file");
            return (ERRCODE_CONFIG_FILE_ERROR, message, shape);
        }
        KeyFileProblem::File(problem) => problem,
    };
    let (code, hint) = match problem {
        SecretFileProblem::Missing => (
            ERRCODE_UNDEFINED_FILE,
            "Put the file back, or set mailroom.key_file. To start with a new key: (umask 077; openssl rand -hex 32 > FILE) as the server's user; links sent before are then void.",
        ),
        SecretFileProblem::Unreadable => (
            ERRCODE_INSUFFICIENT_PRIVILEGE,
            "Let the server's user read the file, as its owner or, if root is, as a member of its group, and pass the directories above.",
        ),
        SecretFileProblem::NotAFile => (
            ERRCODE_CONFIG_FILE_ERROR,
            "Set mailroom.key_file to a file.",
        ),
        SecretFileProblem::ForeignOwner => (
            ERRCODE_CONFIG_FILE_ERROR,
            "Make the server's user, or root, the file's owner.",
        ),
        SecretFileProblem::TooOpen { .. } => (
            ERRCODE_CONFIG_FILE_ERROR,
            "Set mode 0600 or stricter if the server's user owns it, 0640 or stricter if root does. If others may have read it, put a new key in the first line.",
        ),
        SecretFileProblem::TooLarge | SecretFileProblem::Io(_) => (
            ERRCODE_IO_ERROR,
            "Look at the disk and at the directory of the file.",
        ),
    };
    (code, format!("{file} {problem}"), hint.to_owned())
}
