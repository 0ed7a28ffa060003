//! Tokens and their holders, read without a statement, and which of them are still good; `_handout` of
//! `sql/50_handout.sql` says the same, and of all others the reason.

use pgrx::prelude::*;

use crate::server;
use crate::table::{Altered, BY_ID, Key, READING, Row, Search, Table, schema_of};
use crate::trigger::{Column, Kind};

/// The tables `accounts` and `tokens`, open to be read. Batches and claims lock them in this order, and before requests,
/// the queue and the outbox; TRUNCATE does, too, so that neither waits for the other in a circle.
///
/// # Errors
/// As [`Table::open`].
///
/// # Safety
/// As of [`Table::open`].
pub unsafe fn open_sources(schema: pg_sys::Oid) -> Result<(Table, Table), Altered> {
    // SAFETY: by the caller's word.
    unsafe {
        let accounts = Table::open(schema, c"accounts", READING)?;
        let tokens = Table::open(schema, c"tokens", READING)?;
        Ok((accounts, tokens))
    }
}

/// `_lock_sources(boolean)` of `05_library.sql`.
#[pg_extern(sql = false)]
fn _lock_sources(waiting: bool, fcinfo: pg_sys::FunctionCallInfo) -> bool {
    // SAFETY: what the server called with, for a function in the schema of the library's tables; in a transaction.
    unsafe {
        let schema = schema_of(fcinfo);
        if waiting {
            return open_sources(schema).is_ok();
        }
        [c"accounts", c"tokens"].into_iter().all(|name| {
            let table = pg_sys::get_relname_relid(name.as_ptr(), schema);
            // What is not there is in nobody's way.
            table == pg_sys::InvalidOid || pg_sys::ConditionalLockRelationOid(table, READING)
        })
    }
}

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Activation,
    PasswordRecovery,
}

/// The table `tokens`, by one of its keys.
pub struct Tokens {
    key: Key,
    action: Column,
    activation: pg_sys::Oid,
    password_recovery: pg_sys::Oid,
    account: Column,
    secret: Column,
    code: Column,
    expires_at: Column,
    consumed_at: Column,
    revoked_at: Column,
}

/// A row of it.
pub struct Token<'table> {
    row: Row<'table>,
    tokens: &'table Tokens,
}

/// The table `accounts`, by the id.
pub struct Accounts {
    key: Key,
    status: Column,
    provisioned: pg_sys::Oid,
    active: pg_sys::Oid,
    email: Column,
    login: Column,
}

/// A row of it.
pub struct Account<'table> {
    row: Row<'table>,
    accounts: &'table Accounts,
}

impl Tokens {
    /// # Errors
    /// When the table lacks a column, a label of its enum or the key.
    pub fn of(table: Table, search: &'static Search) -> Result<Self, Altered> {
        let action = table.column(c"action", Kind::Enum)?;
        Ok(Self {
            action,
            activation: table.label(action, c"activation")?,
            password_recovery: table.label(action, c"password_recovery")?,
            account: table.column(c"account", Kind::BigInt)?,
            secret: table.column(c"secret", Kind::Bytea)?,
            code: table.column(c"code", Kind::Text)?,
            expires_at: table.column(c"expires_at", Kind::BigInt)?,
            consumed_at: table.column(c"consumed_at", Kind::BigInt)?,
            revoked_at: table.column(c"revoked_at", Kind::BigInt)?,
            key: Key::of(table, search)?,
        })
    }

    /// As [`Key::first`].
    ///
    /// # Safety
    /// As of [`Key::first`].
    pub unsafe fn first(&self, value: pg_sys::Datum) -> Option<Token<'_>> {
        // SAFETY: by the caller's word.
        let row = unsafe { self.key.first(value) }?;
        Some(Token { row, tokens: self })
    }
}

impl Token<'_> {
    /// `None` for what no token of ours is for.
    pub fn action(&self) -> Option<Action> {
        let tokens = self.tokens;
        if self.row.is(tokens.action, tokens.activation) {
            Some(Action::Activation)
        } else if self.row.is(tokens.action, tokens.password_recovery) {
            Some(Action::PasswordRecovery)
        } else {
            None
        }
    }

    /// A bigint.
    pub fn account(&self) -> Option<pg_sys::Datum> {
        self.row.get(self.tokens.account)
    }

    /// A bytea.
    pub fn secret(&self) -> Option<pg_sys::Datum> {
        self.row.get(self.tokens.secret)
    }

    /// A text.
    pub fn code(&self) -> Option<pg_sys::Datum> {
        self.row.get(self.tokens.code)
    }

    /// In seconds since 1970-01-01.
    pub fn expires_at(&self) -> Option<i64> {
        let expires_at = self.row.get(self.tokens.expires_at)?;
        Some(expires_at.value() as i64)
    }

    /// Whether it is open and its account, if there is one, in the state that it is for.
    pub fn is_good(&self, account: Option<&Account<'_>>) -> bool {
        let has_status = account.is_some_and(|Account { row, accounts }| match self.action() {
            Some(Action::Activation) => row.is(accounts.status, accounts.provisioned),
            Some(Action::PasswordRecovery) => row.is(accounts.status, accounts.active),
            None => false,
        });
        let is_used = self.row.get(self.tokens.consumed_at).is_some()
            || self.row.get(self.tokens.revoked_at).is_some();
        let is_open = self
            .expires_at()
            .is_some_and(|expires_at| expires_at > server::epoch());
        has_status && !is_used && is_open
    }

    /// As a value of the table's type.
    pub fn into_datum(self) -> pg_sys::Datum {
        self.row.into_datum()
    }
}

impl Accounts {
    /// # Errors
    /// As [`Tokens::of`].
    pub fn of(table: Table) -> Result<Self, Altered> {
        let status = table.column(c"status", Kind::Enum)?;
        Ok(Self {
            status,
            provisioned: table.label(status, c"provisioned")?,
            active: table.label(status, c"active")?,
            email: table.column(c"email", Kind::Text)?,
            login: table.column(c"login", Kind::Text)?,
            key: Key::of(table, &BY_ID)?,
        })
    }

    /// The account with this id, a bigint.
    ///
    /// # Safety
    /// As of [`Key::first`].
    pub unsafe fn first(&self, id: pg_sys::Datum) -> Option<Account<'_>> {
        // SAFETY: by the caller's word.
        let row = unsafe { self.key.first(id) }?;
        Some(Account {
            row,
            accounts: self,
        })
    }
}

impl Account<'_> {
    /// A text.
    pub fn email(&self) -> Option<pg_sys::Datum> {
        self.row.get(self.accounts.email)
    }

    /// A text.
    pub fn login(&self) -> Option<pg_sys::Datum> {
        self.row.get(self.accounts.login)
    }
}
