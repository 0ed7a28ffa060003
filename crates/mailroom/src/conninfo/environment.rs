//! Connection parameters from the environment.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The environment of a process, as far as connection parameters depend on it.
pub struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// The home directory.
    pub home: Option<PathBuf>,
    /// The user's name.
    pub user: String,
    /// The default of `application_name`.
    pub application: &'static str,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            name.into_string().ok().zip(value.into_string().ok())
        };
        let variables: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
        Self {
            home: variables.get("HOME").map(PathBuf::from),
            user: user_name(&variables),
            variables,
            application: "mailroom send",
        }
    }

    /// The same with another default of `application_name`.
    pub fn for_application(self, application: &'static str) -> Self {
        Self {
            application,
            ..self
        }
    }

    /// The same without a role and its password.
    pub fn without_credentials(mut self) -> Self {
        for name in ["PGUSER", "PGPASSWORD", "PGPASSFILE"] {
            self.variables.remove(name);
        }
        self
    }
}

/// The name of the user that this process runs as.
fn user_name(variables: &BTreeMap<String, String>) -> String {
    let id = rustix::process::geteuid().as_raw().to_string();
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_id = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    of_id
        .or_else(|| variables.get("USER").cloned())
        .unwrap_or_else(|| "postgres".to_owned())
}
