//! Putting mails into `outbox`, see `_enqueue` of `sql/50_handout.sql`.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::with_new_snapshot;
use crate::eligible::{Accounts, Action, Tokens, open_sources};
use crate::signing::{self, Signer};
use crate::table::{BY_ID, READING, Table, schema_of};
use crate::token::{Purpose, SECRET_LEN};
use crate::trigger::{Kind, bytes};
use crate::way::{Opened, Wanted, WayIn};
use crate::{notify, random, server, settings, wake};

/// In the order in which the values come: those of a mail, then those of all mails of a batch.
const OUTBOX: Wanted = Wanted {
    table: c"outbox",
    columns: &[
        (c"id", Kind::BigInt),
        (c"message_id", Kind::Uuid),
        (c"priority", Kind::SmallInt),
        (c"token", Kind::BigInt),
        (c"account", Kind::BigInt),
        (c"expires_at", Kind::TimestampTz),
        (c"kind", Kind::Text),
        (c"recipients", Kind::Texts),
        (c"data", Kind::Jsonb),
        (c"state", Kind::Enum),
        (c"send_at", Kind::TimestampTz),
        (c"created_at", Kind::TimestampTz),
        (c"updated_at", Kind::TimestampTz),
        (c"attempts", Kind::Integer),
        (c"max_attempts", Kind::Integer),
        (c"cc", Kind::Texts),
        (c"bcc", Kind::Texts),
        (c"enqueued_by", Kind::Name),
    ],
    numbered: true,
    defaults: &[
        (c"send_at", "now()"),
        (c"created_at", "now()"),
        (c"updated_at", "now()"),
        (c"attempts", "0"),
        (c"max_attempts", "_max_attempts()"),
        (c"cc", "'{}'::text[]"),
        (c"bcc", "'{}'::text[]"),
        (c"enqueued_by", "CURRENT_USER"),
    ],
    checks: &[
        "(attempts >= 0)",
        "(max_attempts > 0)",
        "CASE state WHEN 'claimed'::outbox_state THEN ((claimed_by IS NOT NULL) AND (claimed_at IS NOT NULL) AND (claimed_until IS NOT NULL)) WHEN 'scheduled'::outbox_state THEN (claimed_until IS NULL) ELSE true END",
        "((ended_at IS NULL) OR ((state <> 'scheduled'::outbox_state) AND (state <> 'claimed'::outbox_state)))",
        "((last_error IS NOT NULL) OR (state <> 'error'::outbox_state) OR (token IS NOT NULL))",
    ],
    predicates: &[
        ("(state = 'scheduled'::outbox_state)", true),
        ("(state = 'claimed'::outbox_state)", false),
        (
            "((token IS NOT NULL) AND (state = ANY ('{scheduled,claimed}'::outbox_state[])))",
            true,
        ),
        (
            "((item_key IS NOT NULL) AND (state = ANY ('{scheduled,claimed}'::outbox_state[])))",
            false,
        ),
        (
            "((state = 'scheduled'::outbox_state) AND (group_key IS NOT NULL))",
            false,
        ),
        (
            "((state = 'claimed'::outbox_state) AND (group_key IS NOT NULL))",
            false,
        ),
        (
            "((state = 'scheduled'::outbox_state) AND (send_at > created_at))",
            false,
        ),
    ],
    triggers: &[
        // For rows that end.
        "CREATE TRIGGER outbox_end AFTER INSERT OR UPDATE OF state ON outbox FOR EACH ROW WHEN (((new.state <> 'scheduled'::outbox_state) AND (new.state <> 'claimed'::outbox_state) AND ((new.ended_at IS NULL) OR (new.claimed_until IS NOT NULL) OR ((new.token IS NOT NULL) AND (((new.data)::jsonb ?| '{token,code,link}'::text[]) OR ((new.state = 'error'::outbox_state) AND (new.last_error IS NULL))))))) EXECUTE FUNCTION _outbox_end()",
        // No restore comes as far as here.
        "CREATE TRIGGER outbox_mind_restore BEFORE INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION _mind_restore()",
    ],
    ..Wanted::NOTHING
};

/// `outbox.priority` of password recoveries.
const URGENT: i16 = -10;
/// `outbox.priority` of everything else.
const NORMAL: i16 = 0;

/// The last moment that a mail may expire at, in seconds since 1970-01-01: the end of the year 9999.
const CALENDAR_END: i64 = 253_402_300_799;

// The server's own, to be called by the server.
unsafe extern "C-unwind" {
    fn jsonb_object(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
}

thread_local! {
    static INTO_OUTBOX: WayIn = const { WayIn::new(OUTBOX) };
}

/// A token that may be handed out, and whose it is.
struct Eligible {
    action: Action,
    secret: [u8; SECRET_LEN],
    /// A text, to be five digits.
    code: pg_sys::Datum,
    account: pg_sys::Datum,
    /// A text.
    email: pg_sys::Datum,
    /// A text.
    login: pg_sys::Datum,
    /// Seconds since 1970-01-01.
    expires_at: i64,
}

/// The tables that a mail is made of, open.
struct Sources {
    accounts: Accounts,
    tokens: Tokens,
}

impl Sources {
    /// The token with this id, if it is plainly good but for its code.
    ///
    /// # Safety
    /// In a statement.
    unsafe fn eligible(&self, id: i64) -> Option<Eligible> {
        // SAFETY: by the caller's word; bigints.
        let (token, account, holder) = unsafe {
            let token = self.tokens.first(pg_sys::Datum::from(id))?;
            let account = token.account()?;
            let holder = self.accounts.first(account)?;
            (token, account, holder)
        };
        if !token.is_good(Some(&holder)) {
            return None;
        }
        let secret = token.secret()?;
        // SAFETY: a bytea.
        let secret = unsafe { bytes(&secret) }.try_into().ok()?;
        Some(Eligible {
            action: token.action()?,
            secret,
            code: token.code()?,
            account,
            email: holder.email()?,
            login: holder.login()?,
            expires_at: token.expires_at()?,
        })
    }
}

/// An array of texts.
fn texts(values: &mut [pg_sys::Datum]) -> pg_sys::Datum {
    // SAFETY: texts, which the server copies.
    unsafe {
        let array = pg_sys::construct_array(
            values.as_mut_ptr(),
            values.len() as i32,
            pg_sys::TEXTOID,
            -1,
            false,
            pg_sys::TYPALIGN_INT as std::ffi::c_char,
        );
        pg_sys::Datum::from(array)
    }
}

fn text(value: &str) -> pg_sys::Datum {
    value.into_datum().unwrap_or(pg_sys::Datum::null())
}

impl Eligible {
    /// `None` if the code is none.
    fn purpose(&self) -> Option<Purpose<'_>> {
        // SAFETY: a text.
        let code = signing::code(unsafe { bytes(&self.code) })?;
        Some(match self.action {
            Action::Activation => Purpose::Activation,
            Action::PasswordRecovery => Purpose::PasswordRecovery { code },
        })
    }

    /// `outbox.data`.
    fn data(&self, signed: &str, link: Option<&str>) -> pg_sys::Datum {
        let mut pairs = vec![
            text("login"),
            self.login,
            text("token"),
            text(signed),
            text("code"),
            self.code,
        ];
        if let Some(link) = link {
            pairs.extend([text("link"), text(link)]);
        }
        let pairs = texts(&mut pairs);
        // SAFETY: an array of texts, none of them null, and as many as make pairs.
        unsafe { pg_sys::DirectFunctionCall1Coll(Some(jsonb_object), pg_sys::InvalidOid, pairs) }
    }
}

/// `outbox`, open to be put into.
struct Outbox {
    outbox: Opened,
    sources: Sources,
    signer: Option<Signer>,
    link_base: Option<String>,
}

impl Outbox {
    /// `None` where a statement has to do it.
    ///
    /// # Safety
    /// In a statement; the tables of the library are in this schema.
    unsafe fn open(schema: pg_sys::Oid) -> Option<Self> {
        // SAFETY: by the caller's word.
        unsafe {
            let (accounts, tokens) = open_sources(schema).ok()?;
            let handout = Table::open(schema, c"_handout", READING).ok()?;
            let are_plain = accounts.is_plain() && tokens.is_plain();
            if !are_plain || !handout.may(pg_sys::ACL_SELECT) {
                return None;
            }
            let mut outbox = INTO_OUTBOX.with(|into| into.open(schema))?;
            // The statement returns the states.
            if !outbox.table.may(pg_sys::ACL_SELECT) {
                return None;
            }
            let state = outbox.table.column(c"state", Kind::Enum).ok()?;
            let scheduled = outbox.table.label(state, c"scheduled").ok()?;
            let user = pg_sys::palloc0(pg_sys::NAMEDATALEN as usize).cast::<pg_sys::NameData>();
            pg_sys::namestrcpy(user, pg_sys::GetUserNameFromId(pg_sys::GetUserId(), false));
            let now = pg_sys::Datum::from(server::transaction_start());
            outbox.fix([
                pg_sys::Datum::from(scheduled),
                now,
                now,
                now,
                pg_sys::Datum::from(0_i32),
                pg_sys::Datum::from(settings::max_attempts()),
                texts(&mut []),
                texts(&mut []),
                pg_sys::Datum::from(user),
            ]);
            Some(Self {
                outbox,
                sources: Sources {
                    accounts: Accounts::of(accounts).ok()?,
                    tokens: Tokens::of(tokens, &BY_ID).ok()?,
                },
                signer: None,
                link_base: settings::link_base_url(),
            })
        }
    }

    /// Puts the mail of this token; false where the statement has to.
    ///
    /// # Errors
    /// As of [`signing::signer`]; the server's own are passed on.
    ///
    /// # Safety
    /// In a statement.
    unsafe fn put(&mut self, token: i64) -> Result<bool, ErrorReport> {
        // SAFETY: by the caller's word.
        let Some(mail) = (unsafe { self.sources.eligible(token) }) else {
            return Ok(false);
        };
        let Some(purpose) = mail.purpose() else {
            return Ok(false);
        };
        let signer = match &self.signer {
            Some(signer) => signer,
            None => self.signer.insert(signing::signer()?),
        };
        let signed = signer.sign(purpose, &mail.secret);
        let link = self
            .link_base
            .as_ref()
            .map(|base| format!("{base}{}?token={signed}", purpose.path()));
        let (kind, priority) = match mail.action {
            Action::Activation => ("activation", NORMAL),
            Action::PasswordRecovery => ("password_recovery", URGENT),
        };
        let expires_at = server::from_epoch(mail.expires_at.clamp(0, CALENDAR_END));
        let message_id = random::uuid()?.into_datum();
        // SAFETY: by the caller's word.
        let id = unsafe { self.outbox.next_id() };
        let values = [
            pg_sys::Datum::from(id),
            message_id.unwrap_or(pg_sys::Datum::null()),
            pg_sys::Datum::from(priority),
            pg_sys::Datum::from(token),
            mail.account,
            pg_sys::Datum::from(expires_at),
            text(kind),
            texts(&mut [mail.email]),
            mail.data(&signed, link.as_deref()),
        ];
        // SAFETY: by the caller's word; the values are in the order of the columns and of their types.
        unsafe { self.outbox.store(values) };
        Ok(true)
    }
}

/// `_put(bigint[])` of `50_handout.sql`.
#[pg_extern(sql = false)]
fn _put(tokens: Vec<i64>, fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<i64>, ErrorReport> {
    // SAFETY: what the server called with, for a function in the schema of the library's tables.
    let Some(mut outbox) = (unsafe { Outbox::open(schema_of(fcinfo)) }) else {
        return Ok(tokens);
    };
    let count = tokens.len();
    let mut left = Vec::new();
    let mut scratch = PgMemoryContexts::new("mailroom mail");
    with_new_snapshot(|| {
        for token in tokens {
            pg_sys::check_for_interrupts!();
            // SAFETY: in a statement; what a mail is made of is not needed once it is put.
            let put = unsafe {
                let put = scratch.switch_to(|_| outbox.put(token));
                scratch.reset();
                put
            };
            if !put? {
                left.push(token);
            }
        }
        Ok::<_, ErrorReport>(())
    })?;
    // SAFETY: in a statement, which sees what was put from here on.
    unsafe { pg_sys::CommandCounterIncrement() };
    if left.len() < count && wake::announce_due(server::transaction_start()) {
        notify::notify(&settings::outbox_channel());
    }
    Ok(left)
}
