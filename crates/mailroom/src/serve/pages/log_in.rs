//! The log-in, the choice of a database, the page after a failure.

use std::rc::Rc;

use maud::{Markup, html};

use crate::serve::database::Database;
use crate::serve::form::Form;
use crate::serve::layout::{asset, shown};
use crate::serve::sessions::{Notice, Session};
use crate::serve::site::Site;

/// The form. Where the reader wanted to go is kept.
pub fn form(
    site: &Site,
    assets: &str,
    database: &Database,
    given: &Form,
    notice: Option<&Notice>,
    is_only: bool,
) -> Markup {
    html! {
        main id="main" tabindex="-1" {
            (brand(site, assets))
            h1 { "Log in to " (database.label) }
            @if let Some(notice) = notice { (shown(notice)) }
            section class="panel" {
                form class="body" method="post" action=(site.path(&database.label, "login")) {
                    @if let Some(next) = given.get("next") { input type="hidden" name="next" value=(next); }
                    div class="field" {
                        label for="f-role" { "Role" }
                        input id="f-role" name="role" autocomplete="username" autocapitalize="none"
                            value=[given.get("role")] spellcheck="false" required autofocus;
                    }
                    div class="field" {
                        label for="f-password" { "Password" }
                        input id="f-password" type="password" name="password" autocomplete="current-password" required;
                    }
                    button class="main" { "Log in" }
                }
            }
            p class="muted" {
                "With your own role of PostgreSQL, a member of mailroom_monitor, mailroom_support or mailroom_admin. \
                 What you see is what its grants allow."
            }
            @if !is_only { p { a href=(site.root("")) { "Other databases" } } }
        }
    }
}

/// The databases to choose from.
pub fn choice(site: &Site, assets: &str, databases: &[Rc<Database>]) -> Markup {
    html! {
        main id="main" tabindex="-1" {
            (brand(site, assets))
            h1 { "Databases" }
            section class="panel" {
                ul class="choice" {
                    @for database in databases {
                        li { a href=(site.path(&database.label, "")) { strong { (database.label) } } }
                    }
                }
            }
        }
    }
}

/// What failed, and the way back.
pub fn failed(
    site: &Site,
    database: &Database,
    session: &Session,
    notice: &Notice,
    here: &str,
) -> Markup {
    html! {
        main id="main" tabindex="-1" {
            div class="verdict" {
                h1 { (notice.message) }
                @for line in [&notice.detail, &notice.hint] {
                    @if !line.is_empty() { p { (line) } }
                }
                div class="acts" {
                    a class="button" href=(site.path(&database.label, here)) { "Try again" }
                    a class="button" href=(site.path(&database.label, "")) { "To the first page" }
                    form method="post" action=(site.path(&database.label, "logout")) {
                        input type="hidden" name="csrf" value=(session.csrf);
                        button { "Log out" }
                    }
                }
            }
        }
    }
}

fn brand(site: &Site, assets: &str) -> Markup {
    html! {
        p class="brand" { img src=(asset(site, assets, "icon.svg")) alt=""; "mailroom" }
    }
}
