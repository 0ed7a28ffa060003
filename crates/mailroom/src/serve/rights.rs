//! What a role may see and do.
//!
//! It chooses menus, columns and buttons. The database decides again at each statement.

use super::cells::Cells;
use super::connection::{Failure, Statements};

/// Flags of these names, which the statement returns.
macro_rules! rights {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The rights of a role.
        #[derive(Clone, Debug, Default)]
        pub struct Rights {
            $($(#[$doc])* pub $name: bool,)*
            /// The roles of mailroom that it is a member of.
            pub roles: Vec<String>,
            /// The role, as the server reports it.
            pub session_user: String,
            /// The version of the extension.
            pub version: String,
        }

        impl Rights {
            fn read(row: &Cells) -> Result<Self, Failure> {
                Ok(Self {
                    $($name: row.flag(stringify!($name))?,)*
                    roles: row.list("roles")?,
                    session_user: row.text("session_user")?,
                    version: row.text("version")?,
                })
            }
        }
    };
}

rights! {
    is_superuser,
    sees_mail,
    sees_addresses,
    sees_contents,
    sees_transports,
    sees_templates,
    sees_log,
    sees_suppressions,
    may_retry,
    /// Mail with a link is signed again.
    may_retry_links,
    may_cancel,
    may_reschedule,
    may_send_again,
    may_retry_failed,
    may_pause,
    may_wake,
    may_suppress,
    may_unsuppress,
    may_revoke,
    may_request,
}

impl Rights {
    /// Those of the role that runs this.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn find(statements: &Statements<'_>) -> Result<Self, Failure> {
        let statement = include_str!("../../sql/page/rights.sql");
        Self::read(&statements.one(statement, &[]).await?)
    }

    /// Whether it is a member of one of mailroom's roles.
    pub fn is_member(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Why the role may not be logged in.
    pub fn objection(&self) -> Option<&'static str> {
        match (self.is_superuser, self.is_member(), self.sees_nothing()) {
            (true, _, _) => Some("a superuser"),
            (false, false, _) => Some("a member of none of mailroom's roles"),
            (false, true, true) => Some("a role that sees nothing"),
            (false, true, false) => None,
        }
    }

    /// Whether there is no page for it.
    fn sees_nothing(&self) -> bool {
        let sees = [
            self.sees_mail,
            self.sees_transports,
            self.sees_templates,
            self.sees_log,
            self.sees_suppressions,
        ];
        !sees.contains(&true)
    }

    /// Whether it sees no address and changes nothing.
    pub fn is_kiosk(&self) -> bool {
        let may_change = self.may_retry
            || self.may_cancel
            || self.may_reschedule
            || self.may_send_again
            || self.may_retry_failed
            || self.may_pause
            || self.may_wake
            || self.may_suppress
            || self.may_unsuppress
            || self.may_revoke
            || self.may_request;
        !self.sees_addresses && !self.sees_suppressions && !may_change
    }

    /// The role of mailroom by which the page calls this one, in short.
    pub fn title(&self) -> &str {
        let known = ["admin", "support", "monitor"];
        let has = |name: &str| {
            self.roles
                .iter()
                .any(|role| role == &format!("mailroom_{name}"))
        };
        let first = self.roles.first().map_or("", String::as_str);
        known
            .into_iter()
            .find(|name| has(name))
            .unwrap_or(first.strip_prefix("mailroom_").unwrap_or(first))
    }
}
