//! The settings that say where mail goes: the transport of mail for which neither the row nor a route names one, and in
//! development the one address that gets all of it.

use std::ffi::{CString, c_char, c_void};

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;

use super::candidate;

static TRANSPORT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

static REDIRECT_TO: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Bytes of a name at most, as of PostgreSQL's own names.
const LONGEST: usize = 63;

/// Defines them. Called by [`super::define`].
pub fn define() {
    // SAFETY: the hook allocates nothing, does not panic and leaves `newval` as it is.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"mailroom.transport",
            c"The transport of new mail for whose kind there is no route.",
            c"A name as in [a-z][a-z0-9_-]{0,62}. Empty: clients deliver it, by mailroom_claim.",
            &TRANSPORT,
            GucContext::Suset,
            GucFlags::empty(),
            Some(check_transport),
            None,
            None,
        );
    }
    // Why it is not checked here: sql/50_queue/97_redirect.sql.
    GucRegistry::define_string_guc(
        c"mailroom.redirect_to",
        c"The address that all mail goes to, instead of its recipients.",
        c"For development; a header of the mail names the recipients. Empty: mail goes to these. What is no address holds all mail.",
        &REDIRECT_TO,
        GucContext::Suset,
        GucFlags::empty(),
    );
}

/// Refuses what no row could have for its transport: otherwise a mistyped name would fail every INSERT.
unsafe extern "C-unwind" fn check_transport(
    newval: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes a pointer to the candidate, which is NUL-terminated or null.
    let candidate = unsafe { candidate(newval) };
    candidate.is_none_or(|name| is_empty_or_name(name.to_bytes()))
}

/// The rule of the domain `_transport` in `sql/40_outbox/10_outbox.sql`.
fn is_empty_or_name(name: &[u8]) -> bool {
    let Some((first, rest)) = name.split_first() else {
        return true;
    };
    name.len() <= LONGEST
        && first.is_ascii_lowercase()
        && rest
            .iter()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// `mailroom.transport`.
pub fn transport() -> String {
    let name = TRANSPORT.get().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// `mailroom.redirect_to`; `None` when it is empty.
pub fn redirect_to() -> Option<String> {
    let address = REDIRECT_TO.get().filter(|address| !address.is_empty())?;
    Some(address.to_string_lossy().into_owned())
}

#[pg_extern(sql = false)]
fn _default_transport() -> String {
    transport()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_named_as_the_domain_demands() {
        let longest = "a".repeat(LONGEST);
        for good in ["", "a", "relay-2", "s_3", &longest] {
            assert!(is_empty_or_name(good.as_bytes()), "{good}");
        }
        let longer = "a".repeat(LONGEST + 1);
        for bad in [
            " ", "A", "2nd", "_a", "-", "a b", "a.b", "\u{e4}", "a\n", &longer,
        ] {
            assert!(!is_empty_or_name(bad.as_bytes()), "{bad}");
        }
    }
}
