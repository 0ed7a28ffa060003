//! Signing as SQL sees it: the key file in force, cached, behind `_sign` and `_verify`.
//!
//! The cache holds the keys of this process. It looks at the file's state at most once a transaction, so
//! that a batch of a thousand costs one `stat`, and an edited file is in force with the next transaction.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use crate::random;
use crate::restore;
use crate::settings;
use mailroom_core::secret_file::SecretFileProblem;
use mailroom_core::token::key_file::{self, Fingerprint, KeyFileError, KeyFileProblem, KeyRing};
use mailroom_core::token::{self, Code, Parsed, Purpose, SECRET_LEN};

struct Cached {
    path: PathBuf,
    fingerprint: Fingerprint,
    /// What was last found wrong with the file, having been told; the keys are those of before.
    problem: Option<KeyFileProblem>,
    /// Start of the transaction that last compared the fingerprint.
    checked_in: pg_sys::TimestampTz,
    ring: Rc<KeyRing>,
}

thread_local! {
    static CACHE: RefCell<Option<Cached>> = const { RefCell::new(None) };
}

/// The keys of `mailroom.key_file`.
///
/// A file that is no good, or gone, does not replace keys that this process has: it goes on with them, and
/// says so in the server's log, once for each thing it finds wrong. What it looks for is another path, or
/// the file put right.
///
/// # Errors
/// A [`KeyFileError`] when the file is no good and there are no keys of before.
fn key_ring() -> Result<Rc<KeyRing>, KeyFileError> {
    // SAFETY: reads a variable of this process; the caller is in a transaction, as every SQL function is.
    let transaction = unsafe { pg_sys::GetCurrentTransactionStartTimestamp() };
    let path = settings::key_file();
    CACHE.with_borrow_mut(|cache| {
        if let Some(cached) = cache.as_mut().filter(|cached| cached.path == path) {
            if cached.checked_in != transaction
                && Fingerprint::at(&path) == Some(cached.fingerprint)
            {
                cached.checked_in = transaction;
            }
            if cached.checked_in == transaction {
                return Ok(Rc::clone(&cached.ring));
            }
        }
        let (ring, fingerprint) = match (key_file::load(&path), cache.as_mut()) {
            (Ok(loaded), _) => loaded,
            (Err(error), Some(cached)) if cached.path == path => {
                cached.checked_in = transaction;
                if cached.problem.as_ref() != Some(&error.problem) {
                    tell_kept(&error);
                    cached.problem = Some(error.problem);
                }
                return Ok(Rc::clone(&cached.ring));
            }
            (Err(error), _) => return Err(error),
        };
        let ring = Rc::new(ring);
        *cache = Some(Cached {
            path,
            fingerprint,
            problem: None,
            checked_in: transaction,
            ring: Rc::clone(&ring),
        });
        Ok(ring)
    })
}

/// Says, to the server's log only, that the keys in memory stay.
fn tell_kept(error: &KeyFileError) {
    let (code, message, hint) = explain(&error.path, &error.problem);
    ErrorReport::new(
        code,
        format!("mailroom: going on with the keys in memory: {message}"),
        function_name!(),
    )
    .set_hint(hint)
    .report(PgLogLevel::LOG_SERVER_ONLY);
}

/// Why nothing was signed or verified.
pub enum Error {
    /// An argument that must be there is null.
    Null(&'static str),
    /// The secret has this many bytes.
    SecretLength(usize),
    /// The code is not five digits but has this many characters.
    Code(usize),
    /// The action is none of ours.
    Action,
    /// There are no keys.
    KeyFile(KeyFileError),
    /// Somebody other than a superuser asks for a key.
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
            .set_hint("Pass action, tokens.secret and, for password_recovery, tokens.code."),
            Error::SecretLength(bytes) => invalid("a token's secret has 32 bytes")
                .set_detail(format!("This one has {bytes}."))
                .set_hint("Use tokens.secret as it is."),
            Error::Code(characters) => invalid("a code is five decimal digits")
                .set_detail(format!("This one has {characters} characters."))
                .set_hint("Use tokens.code as it is."),
            Error::Action => invalid("unknown token action")
                .set_hint("The actions are activation and password_recovery."),
            Error::NotSuperuser => Self::new(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "only a superuser may make a signing key",
                function_name!(),
            )
            .set_hint("The key is the whole cluster's. Ask its administrator."),
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

/// An argument of type text. It comes in the encoding of the database, and must not fail for that: what is no UTF-8
/// is no token, code or action either.
pub type Text<'a> = &'a [u8];

/// As UTF-8, which ASCII is in any encoding, and hence all of ours; anything else is as good as another text that is
/// none of them.
pub fn readable(text: Text<'_>) -> &str {
    std::str::from_utf8(text).unwrap_or("?")
}

#[pg_extern(sql = false)]
fn _sign(
    action: Option<Text<'_>>,
    secret: Option<&[u8]>,
    code: Option<Text<'_>>,
) -> Result<String, ErrorReport> {
    let (_, token) = signed(action.map(readable), secret, code.map(readable))?;
    Ok(token)
}

/// The public form of [`_sign`]: not a SQL function around it, whose arguments would be parameters of a statement.
#[pg_extern(sql = false)]
fn mailroom_sign(
    action: Option<pg_sys::Oid>,
    secret: Option<&[u8]>,
    code: Option<Text<'_>>,
) -> Result<String, ErrorReport> {
    let action = action.map(label);
    let (_, token) = signed(action.as_deref(), secret, code.map(readable))?;
    Ok(token)
}

/// The label of an enum's value.
fn label(value: pg_sys::Oid) -> String {
    pgrx::enum_helper::lookup_enum_by_oid(value).0
}

/// The signed token of this secret, and what it is for.
///
/// # Errors
/// 22004 when an argument is missing, 22023 when it has the wrong shape; as [`verifier`].
pub fn signed<'a>(
    action: Option<&str>,
    secret: Option<&[u8]>,
    code: Option<&'a str>,
) -> Result<(Purpose<'a>, String), ErrorReport> {
    let purpose = purpose(action.ok_or(Error::Null("action"))?, code)?;
    let secret = secret.ok_or(Error::Null("secret"))?;
    let secret: &[u8; SECRET_LEN] = secret
        .try_into()
        .map_err(|_| Error::SecretLength(secret.len()))?;
    let ring = key_ring().map_err(Error::from)?;
    Ok((purpose, token::sign(ring.signing(), purpose, secret)))
}

#[pg_extern(sql = false)]
fn _verify(
    token: Option<Text<'_>>,
    action: Option<Text<'_>>,
    code: Option<Text<'_>>,
) -> Result<bool, ErrorReport> {
    verify(token, action.map(readable), code.map(readable))
}

/// The public form of [`_verify`], as [`mailroom_sign`] is of [`_sign`].
#[pg_extern(sql = false)]
fn mailroom_verify(
    token: Option<Text<'_>>,
    action: Option<pg_sys::Oid>,
    code: Option<Text<'_>>,
) -> Result<bool, ErrorReport> {
    verify(token, action.map(label).as_deref(), code.map(readable))
}

fn verify(
    token: Option<Text<'_>>,
    action: Option<&str>,
    code: Option<&str>,
) -> Result<bool, ErrorReport> {
    // First, so that a server without keys says so whatever it is asked.
    let verifier = verifier()?;
    let (Some(token), Some(action)) = (token, action) else {
        return Ok(false);
    };
    let Ok(purpose) = purpose(action, code) else {
        return Ok(false);
    };
    Ok(parse(token).is_some_and(|token| verifier.accepts(&token, purpose)))
}

/// All keys that are in force, to verify with.
pub struct Verifier(Rc<KeyRing>);

/// The keys to verify with.
///
/// # Errors
/// 58P01, 42501, F0000 or 58030 when there are none, as the key file has it.
pub fn verifier() -> Result<Verifier, ErrorReport> {
    Ok(Verifier(key_ring().map_err(Error::from)?))
}

impl Verifier {
    /// As [`Parsed::is_genuine`].
    pub fn accepts(&self, token: &Parsed, purpose: Purpose<'_>) -> bool {
        token.is_genuine(self.0.verifying(), purpose)
    }
}

/// As [`token::parse`].
pub fn parse(token: Text<'_>) -> Option<Parsed> {
    token::parse(readable(token))
}

/// The code in an argument; `None` for what is none.
pub fn code(text: Text<'_>) -> Option<Code<'_>> {
    Code::new(readable(text))
}

fn require_superuser() -> Result<(), Error> {
    // SAFETY: asks for the current user's rights, in a transaction as every SQL function is.
    let allowed = unsafe { pg_sys::superuser() };
    allowed.then_some(()).ok_or(Error::NotSuperuser)
}

#[pg_extern(sql = false)]
fn mailroom_rotate_key() -> Result<i32, ErrorReport> {
    require_superuser()?;
    let path = settings::key_file();
    let mut key = Zeroizing::new([0_u8; token::KEY_LEN]);
    random::fill(&mut *key)?;
    let keys = key_file::prepend(&path, &key).map_err(Error::from)?;
    // In force for the rest of this transaction, too.
    CACHE.set(None);
    ereport!(
        PgLogLevel::LOG,
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!(
            "mailroom: put a new signing key into \"{}\", which holds {keys} now",
            path.display()
        )
    );
    Ok(i32::try_from(keys).unwrap_or(i32::MAX))
}

#[pg_extern(sql = false)]
fn _create_key_file() -> Result<(), ErrorReport> {
    require_superuser()?;
    let path = settings::key_file();
    if path.exists() {
        // A file that is no good is told to whoever installs, not only to the first mail.
        key_file::load(&path).map_err(Error::from)?;
        return Ok(());
    }
    if restore::is_installing() {
        // A new key would make the links that were sent before void without a word.
        let (code, message, hint) = explain(&path, &SecretFileProblem::Missing.into());
        ErrorReport::new(code, message, function_name!())
            .set_detail("The rows of mailroom are being restored from a dump, and the key is no part of it. Nothing is signed without.")
            .set_hint(hint)
            .report(PgLogLevel::WARNING);
        return Ok(());
    }
    let mut key = Zeroizing::new([0_u8; token::KEY_LEN]);
    random::fill(&mut *key)?;
    if key_file::create(&path, &key).map_err(Error::from)? {
        ereport!(
            PgLogLevel::LOG,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            format!(
                "mailroom: generated a signing key in \"{}\"",
                path.display()
            )
        );
    } else {
        // Somebody else's, made meanwhile, or a link that leads nowhere.
        key_file::load(&path).map_err(Error::from)?;
    }
    Ok(())
}

/// The purpose a pair of SQL values stands for; a code is looked at for recoveries only.
///
/// # Errors
/// 22004 when a recovery's code is missing, 22023 when action or code has the wrong shape.
pub fn purpose<'a>(action: &str, code: Option<&'a str>) -> Result<Purpose<'a>, Error> {
    match action {
        "activation" => Ok(Purpose::Activation),
        "password_recovery" => {
            let digits = code.ok_or(Error::Null("code"))?;
            let code = Code::new(digits).ok_or_else(|| Error::Code(digits.chars().count()))?;
            Ok(Purpose::PasswordRecovery { code })
        }
        _ => Err(Error::Action),
    }
}

/// What a broken key file looks like to a client: code, message and remedy, never its content.
fn explain(path: &Path, problem: &KeyFileProblem) -> (PgSqlErrorCode, String, String) {
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
