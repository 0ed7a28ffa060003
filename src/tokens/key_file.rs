//! The key file as this process has it: cached keys, a new one, and the errors that clients see.
//!
//! The cache holds the keys of this process. It looks at the file's state at most once a transaction, so
//! that a batch of a thousand costs one `stat`, and an edited file is in force with the next transaction.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use crate::pg::{catalog, random, transaction};
use crate::restore;
use crate::settings;
use mailroom_core::secret_file::SecretFileProblem;
use mailroom_core::token;
use mailroom_core::token::key_file::{
    self as keys, Fingerprint, KeyFileError, KeyFileProblem, KeyRing,
};

use super::errors::{Error, explain};

struct Cached {
    path: PathBuf,
    fingerprint: Fingerprint,
    /// What was last found wrong with the file, having been told; the keys are those of before.
    problem: Option<KeyFileProblem>,
    /// Start of the transaction that last compared the fingerprint.
    checked_in: i64,
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
pub fn key_ring() -> Result<Rc<KeyRing>, KeyFileError> {
    let transaction = transaction::start();
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
        let (ring, fingerprint) = match (keys::load(&path), cache.as_mut()) {
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

fn require_superuser() -> Result<(), Error> {
    catalog::is_superuser()
        .then_some(())
        .ok_or(Error::NotSuperuser)
}

#[pg_extern(sql = false)]
fn mailroom_rotate_key() -> Result<i32, ErrorReport> {
    require_superuser()?;
    let path = settings::key_file();
    let mut key = Zeroizing::new([0_u8; token::KEY_LEN]);
    random::fill(&mut *key)?;
    let keys = keys::prepend(&path, &key).map_err(Error::from)?;
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
        // An unusable file is reported to the user who installs, and not only by the first mail.
        keys::load(&path).map_err(Error::from)?;
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
    if keys::create(&path, &key).map_err(Error::from)? {
        ereport!(
            PgLogLevel::LOG,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            format!(
                "mailroom: generated a signing key in \"{}\"",
                path.display()
            )
        );
    } else {
        // Another session created it meanwhile, or it is a link without a target.
        keys::load(&path).map_err(Error::from)?;
    }
    Ok(())
}
