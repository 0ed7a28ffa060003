//! Attaching to a database, and polling it.

use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::connect::{Connected, connect};
use super::{NO_ANSWER, OUTBOX_CHANNEL, STATEMENT_TIMEOUT, Session, search_path};
use crate::conninfo::Target;
use crate::control::Control;
use crate::database_error::DatabaseError;
use crate::log::Log;

/// The version of the extension that this program was built for.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The settings of the database that this program uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The duration of a lease.
    pub lease: Duration,
    /// Maximum tokens of a batch.
    pub batch_limit: u32,
    /// How long the oldest token may wait for a full batch.
    pub batch_timeout: Duration,
    /// The interval of purges.
    pub poll_interval: Duration,
    /// Whether this program has to collect tokens.
    pub collect: bool,
    /// The channel that announces tokens.
    pub channel: String,
    /// `mailroom.redirect_to`: the address that receives all mail instead of its recipients.
    pub redirect_to: Option<String>,
    /// The channel that announces tokens, as a quoted identifier.
    quoted_channel: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            batch_limit: 100,
            batch_timeout: Duration::from_secs(1),
            poll_interval: Duration::from_secs(30),
            collect: true,
            channel: String::new(),
            redirect_to: None,
            quoted_channel: String::new(),
        }
    }
}

impl Settings {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        let lease: i32 = row.try_get(2)?;
        let batch_limit: i32 = row.try_get(3)?;
        Ok(Self {
            lease: Duration::from_secs(lease.unsigned_abs().into()),
            batch_limit: batch_limit.unsigned_abs().max(1),
            batch_timeout: seconds(row.try_get(4)?),
            poll_interval: seconds(row.try_get(5)?),
            collect: row.try_get(6)?,
            channel: row.try_get(7)?,
            quoted_channel: row.try_get(8)?,
            redirect_to: row.try_get(10)?,
        })
    }
}

/// The result of a poll.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    /// In how many seconds mail is due or a lease expires, less than 0 if it is; `None` for never.
    pub due_in: Option<f64>,
    /// Whether mailroom_pause() was called.
    pub paused: bool,
    /// Whether another server session received the LISTEN, so that notifications do not reach this connection.
    pub is_not_listening: bool,
}

impl Session {
    /// Connects, and checks the extension and the privileges of the role.
    ///
    /// # Errors
    /// Why the database cannot be used.
    pub fn attach(
        runtime: &Rc<Runtime>,
        target: &Target,
        control: &Control,
        log: &Log,
    ) -> Result<Self, DatabaseError> {
        let mut stopping = control.clone();
        let (connected, found) = runtime.block_on(async {
            let attach = async {
                let connected = connect(target).await?;
                let found = timeout(STATEMENT_TIMEOUT, find(&connected.client)).await;
                let found = found.unwrap_or_else(|_| Err(DatabaseError::lost(NO_ANSWER)))?;
                Ok::<_, DatabaseError>((connected, found))
            };
            tokio::select! {
                biased;
                () = stopping.stopped() => Err(DatabaseError::lost("told to stop")),
                attached = attach => attached,
            }
        })?;
        let Connected {
            client,
            events,
            connection,
        } = connected;
        Ok(Self {
            runtime: Rc::clone(runtime),
            control: control.clone(),
            log: log.clone(),
            client,
            events,
            event: None,
            path: search_path(&found.schema),
            database: found.database,
            role: found.role,
            is_utf8: found.is_utf8,
            is_collector: found.is_collector,
            settings: Settings::default(),
            listening_on: None,
            is_broken: false,
            connection,
        })
    }

    /// Asks when mail is due, and reads the settings.
    ///
    /// # Errors
    /// If the statement fails, or the extension has become another version.
    pub fn poll(&mut self, transports: &[String]) -> Result<Polled, DatabaseError> {
        let statement = include_str!("../../sql/poll.sql");
        let parameters = [(
            &transports as &(dyn tokio_postgres::types::ToSql + Sync),
            Type::TEXT_ARRAY,
        )];
        let channel = self.listening_on.clone();
        let read = |row: &Row| {
            let settings = Settings::read(row)?;
            let is_listening: bool = row.try_get(9)?;
            let was_to_listen = channel.as_ref() == Some(&settings.quoted_channel);
            let polled = Polled {
                due_in: row.try_get(0)?,
                paused: row.try_get(1)?,
                is_not_listening: was_to_listen && !is_listening,
            };
            let version: String = row.try_get(11)?;
            Ok((polled, settings, version))
        };
        let (polled, settings, version) =
            self.call(STATEMENT_TIMEOUT, statement, &parameters, read)?;
        check_version(&version, None)?;
        self.settings = settings;
        Ok(polled)
    }

    /// The versions of the library that the server has loaded, and of the extension.
    ///
    /// # Errors
    /// If the statement fails.
    pub fn versions(&mut self) -> Result<(String, String), DatabaseError> {
        let statement = "SELECT v.library, v.sql FROM mailroom_version() v";
        self.call(STATEMENT_TIMEOUT, statement, &[], |row| {
            Ok((row.try_get(0)?, row.try_get(1)?))
        })
    }

    /// Returns the problems of the database: for each, whether mail is not sent because of it, and what it is.
    ///
    /// # Errors
    /// If the statement fails.
    pub fn problems(&mut self) -> Result<Vec<(bool, String)>, DatabaseError> {
        let statement = include_str!("../../sql/problems.sql");
        let rows = self.rows(STATEMENT_TIMEOUT, statement, &[])?;
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        let problems: Result<_, tokio_postgres::Error> = rows.iter().map(read).collect();
        problems.map_err(|error| DatabaseError::from(error).into_log(&self.log))
    }

    /// Listens on [`OUTBOX_CHANNEL`], if this program collects on `mailroom.channel` as it is now, and on no others.
    ///
    /// # Errors
    /// If the statement fails.
    pub fn listen(&mut self) -> Result<(), DatabaseError> {
        let wanted = self.settings.quoted_channel.clone();
        if self.listening_on.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let mut statement = format!("UNLISTEN *; LISTEN {OUTBOX_CHANNEL}");
        if self.is_collector {
            statement.push_str(&format!("; LISTEN {wanted}"));
        }
        let client = &self.client;
        let done = self.runtime.block_on(async {
            let limit = timeout(STATEMENT_TIMEOUT, client.batch_execute(&statement));
            limit.await.ok()
        });
        match done {
            Some(done) => done?,
            None => {
                self.is_broken = true;
                return Err(DatabaseError::lost(NO_ANSWER));
            }
        }
        self.listening_on = Some(wanted);
        Ok(())
    }
}

/// What was found in a database.
struct Found {
    schema: String,
    database: String,
    role: String,
    is_collector: bool,
    is_utf8: bool,
}

/// Compares the version of the extension with that of this program; the error tells that of the library if it is known.
fn check_version(version: &str, library: Option<&str>) -> Result<(), DatabaseError> {
    if version == VERSION {
        return Ok(());
    }
    let library = library.map_or_else(String::new, |library| {
        format!(", the library that the server has loaded {library}")
    });
    Err(DatabaseError::unusable(
        format!("the extension is version {version}, this program {VERSION}{library}"),
        "Run ALTER EXTENSION mailroom UPDATE, or the program of that version.",
    ))
}

/// The extension of a database.
pub struct Extension {
    /// Its schema as a quoted identifier.
    pub schema: String,
    /// The name of the database, as the server reports it.
    pub database: String,
}

/// Finds the extension.
///
/// # Errors
/// If there is none, or it is of another version.
pub async fn find_extension(client: &Client) -> Result<Extension, DatabaseError> {
    let installed = include_str!("../../../../sql/queries/attach.sql");
    let row = client.query_typed(installed, &[]).await?.into_iter().next();
    let Some(row) = row else {
        return Err(DatabaseError::unusable(
            "the database does not have the extension mailroom",
            "CREATE EXTENSION mailroom, or name another database.",
        ));
    };
    let version: String = row.try_get(0)?;
    let schema: String = row.try_get(1)?;
    if version != VERSION {
        // Without the right to call it, or the function, the error tells of two versions only.
        let statement = format!("SELECT v.library FROM {schema}.mailroom_version() v");
        let told = client.query_typed(&statement, &[]).await.ok();
        let library: Option<String> = told
            .and_then(|rows| rows.into_iter().next())
            .and_then(|row| row.try_get(0).ok());
        check_version(&version, library.as_deref())?;
    }
    Ok(Extension {
        schema,
        database: row.try_get(2)?,
    })
}

/// The error for a server that cannot be written to.
pub fn standby() -> DatabaseError {
    DatabaseError::unusable(
        "the server is a standby",
        "Name all hosts, or the one that can be written to.",
    )
}

async fn find(client: &Client) -> Result<Found, DatabaseError> {
    let Extension { schema, database } = find_extension(client).await?;
    let rights = client.query_typed(include_str!("../../sql/rights.sql"), &[]);
    let rights = rights.await?.into_iter().next();
    let rights = rights.ok_or_else(|| DatabaseError::unexpected("no row"))?;
    let (may_send, is_standby): (bool, bool) = (rights.try_get(0)?, rights.try_get(2)?);
    let role: String = rights.try_get(3)?;
    if !may_send {
        return Err(DatabaseError::unusable(
            format!("role \"{role}\" may not claim mail"),
            "GRANT mailroom_sender, or mailroom_collector, to it.",
        ));
    }
    if is_standby {
        return Err(standby());
    }
    let encoding: String = rights.try_get(4)?;
    Ok(Found {
        schema,
        database,
        role,
        is_collector: rights.try_get(1)?,
        is_utf8: encoding == "UTF8",
    })
}
