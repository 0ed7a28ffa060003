//! The key file in a process: cached keys, creating the file and rotating its key.
//!
//! Each process caches the keys. It checks the state of the file at most once a transaction, so that a batch of a
//! thousand tokens costs one `stat`, and an edited file takes effect with the next transaction.

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
    /// The problem of the file that was last logged; the keys are those from before it.
    problem: Option<KeyFileProblem>,
    /// Start of the transaction that last compared the fingerprint.
    checked_in: i64,
    ring: Rc<KeyRing>,
}

thread_local! {
    static CACHE: RefCell<Option<Cached>> = const { RefCell::new(None) };
}

/// Returns the keys of `mailroom.key_file`.
///
/// If the file is invalid or missing, the process continues with the keys that it has, and logs each new problem once.
/// It does so until the file is valid or the setting names another file.
///
/// # Errors
/// A [`KeyFileError`] if the file cannot be used and the process has no keys of that file.
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

/// Logs, to the server's log only, that the process continues with the keys in memory.
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
    // The new key takes effect in the rest of this transaction too.
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
        // Report an unusable file to the user who runs CREATE EXTENSION, not only with the first mail.
        keys::load(&path).map_err(Error::from)?;
        return Ok(());
    }
    if restore::is_installing() {
        // A new key would silently invalidate the links that were sent before.
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
        // Another session has just created it, or it is a symbolic link without a target.
        keys::load(&path).map_err(Error::from)?;
    }
    Ok(())
}
