//! What is known of a message: what happened, what was reported, its columns, its attachments.

use maud::{Markup, html};

use super::Message;
use crate::serve::connection::{Clock, Failure};
use crate::serve::pages::history;
use crate::serve::words::{copyable, listed, maybe_time, number, size};

impl Message {
    pub(super) fn happened(&self, clock: &Clock) -> Result<Markup, Failure> {
        let by = self.maybe("enqueued_by")?;
        let scheduled =
            html! { "Scheduled" @if let Some(by) = by { " by " strong { bdi { (by) } } } };
        let created = self.cells.maybe("created_at")?;
        let used = self.maybe("link_used_at")?;
        Ok(html! {
            section class="panel" id="history" data-live {
                header { h2 { "What happened" } }
                div class="body" {
                    (history::timeline((created, scheduled), &self.history, used, clock)?)
                }
            }
        })
    }

    /// The events with their recipients, for those who see addresses.
    pub(super) fn reports(&self, clock: &Clock) -> Result<Markup, Failure> {
        if self.events.is_empty() {
            return Ok(html! {});
        }
        Ok(html! {
            section class="panel" id="events" data-live {
                header { h2 { "Reported of recipients" } }
                table class="cards" {
                    thead {
                        tr {
                            th scope="col" { "Recipient" }
                            th scope="col" { "Event" }
                            th scope="col" { "When" }
                            th scope="col" { "Reply" }
                        }
                    }
                    tbody {
                        @for event in &self.events {
                            @let to = event.maybe("recipient")?;
                            @let reason = [event.text("status")?, event.text("reason")?].join(" ");
                            tr {
                                th scope="row" class="first any" { @if let Some(to) = to { bdi { (to) } } @else { "not named" } }
                                td { (event.text("type")?) @if !reason.trim().is_empty() { span class="why" { (reason.trim()) } } }
                                td class="side nowrap" { (maybe_time(event.maybe("occurred_at")?.as_deref(), clock)) }
                                td class="any" { bdi { (event.text("detail")?) } }
                            }
                        }
                    }
                }
            }
        })
    }

    pub(super) fn details(&self, clock: &Clock) -> Result<Markup, Failure> {
        let cells = &self.cells;
        let fallback = cells.maybe("fallback_from")?;
        let fallback = fallback.filter(|from| !from.is_empty());
        let time = |name: &str| -> Result<Markup, Failure> {
            Ok(maybe_time(cells.maybe(name)?.as_deref(), clock))
        };
        Ok(html! {
            section class="panel" {
                header { h2 { "Details" } }
                div class="body" {
                    dl class="facts" {
                        (self.addresses()?)
                        dt { "Kind" } dd { bdi { (dash(cells.maybe("kind")?)) } }
                        dt { "Transport" }
                        dd {
                            (dash(cells.maybe("transport")?))
                            @if let Some(from) = fallback { " (instead of " (from) ")" }
                        }
                        dt { "Priority" } dd { (cells.number("priority")?) }
                        dt { "Due" } dd { (time("send_at")?) }
                        dt { "Expires" } dd { (time("expires_at")?) }
                        dt { "Attempts" }
                        dd {
                            (number(cells.number("failed_attempts")?)) " failed of at most " (number(cells.number("max_attempts")?))
                            @if cells.number("ambiguous_attempts")? > 0 {
                                ", " (number(cells.number("ambiguous_attempts")?)) " may have arrived"
                            }
                        }
                        dt { "Message ID" } dd { (copyable(&cells.text("message_id")?, "message ID")) }
                        (self.keys()?)
                    }
                }
            }
        })
    }

    fn addresses(&self) -> Result<Markup, Failure> {
        let fields = [
            ("To", "recipients"),
            ("Cc", "cc"),
            ("Bcc", "bcc"),
            ("Reply to", "reply_to"),
        ];
        Ok(html! {
            @for (label, name) in fields {
                @let all = self.list(name)?;
                @if !all.is_empty() { dt { (label) } dd { span class="any" { (listed(&all)) } } }
            }
        })
    }

    fn keys(&self) -> Result<Markup, Failure> {
        let keys = [
            ("Item key", "item_key"),
            ("Group key", "group_key"),
            ("Provider ID", "provider_id"),
        ];
        let bytes = match self.sees_addresses {
            true => self.cells.number("attachment_bytes")?,
            false => 0,
        };
        Ok(html! {
            @for (label, name) in keys {
                @if let Some(value) = self.maybe(name)? { dt { (label) } dd { (copyable(&value, label)) } }
            }
            @if bytes > 0 { dt { "Attachments" } dd { (size(bytes)) } }
        })
    }

    pub(super) fn attached(&self) -> Result<Markup, Failure> {
        if self.attachments.is_empty() {
            return Ok(html! {});
        }
        Ok(html! {
            section class="panel" {
                header { h2 { "Attachments" } }
                table {
                    thead { tr { th scope="col" { "File" } th scope="col" { "Type" } th scope="col" class="num" { "Size" } } }
                    tbody {
                        @for row in &self.attachments {
                            tr {
                                th scope="row" class="any" { bdi { (row.text("filename")?) } }
                                td { bdi { (row.text("content_type")?) } }
                                td class="num" { (size(row.number("size")?)) }
                            }
                        }
                    }
                }
            }
        })
    }
}

fn dash(value: Option<String>) -> String {
    value
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "–".to_owned())
}
