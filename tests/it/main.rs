//! Tier 4: scenarios on servers of their own, one module per subject.
//!
//! `tests/run` selects the tests by their paths, and leaves out those that need what the server or the machine lacks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../book/mod.rs"]
mod book;
#[path = "../browser/mod.rs"]
mod browser;
#[path = "../cluster/mod.rs"]
mod cluster;
/// The book's sender in Rust, which `senders` compares with its page.
#[path = "../consumer/sender.rs"]
#[allow(dead_code, reason = "its main connects to another server")]
mod consumer;
#[path = "../counterparts/mod.rs"]
mod counterparts;
#[path = "../demo/mod.rs"]
mod demo;
#[path = "../mailbox/mod.rs"]
mod mailbox;
#[path = "../memory/mod.rs"]
mod memory;
#[path = "../names/mod.rs"]
mod names;
#[path = "../pooler/mod.rs"]
mod pooler;
#[path = "../post/mod.rs"]
mod post;
#[path = "../receiver/mod.rs"]
mod receiver;
#[path = "../sender_scene/mod.rs"]
mod sender_scene;
#[path = "../volume/mod.rs"]
mod volume;

use counterparts::process;

mod accounts;
mod added_columns;
mod addresses;
mod attachments;
mod audited;
mod book_blocks;
mod book_commands;
mod bounds;
mod change_stream;
mod citizen;
mod clock;
mod crash;
mod databases;
mod delivery;
mod delivery_counterparts;
mod delivery_doubt;
mod delivery_faults;
mod delivery_network;
mod delivery_pace;
mod delivery_panic;
mod delivery_pauses;
mod delivery_policy;
mod delivery_providers;
mod delivery_refusals;
mod delivery_specs;
mod delivery_transports;
mod docs;
mod drivers;
mod dump;
mod encodings;
mod events;
mod fleet;
mod frameworks;
mod handout;
mod hostile;
mod install;
mod invariants;
mod keys;
mod locales;
mod odd_values;
mod own_table;
mod page;
mod page_browser;
mod page_statements;
mod policies;
mod prose;
mod queue;
mod readme;
mod receive;
mod recipients;
mod reference;
mod secrets;
mod sender;
mod sender_connections;
mod sender_once;
mod sender_tls;
mod senders;
mod smtp;
mod smtp_faults;
mod smtp_generated;
mod standby;
mod suppressions;
mod templates;
mod upgrade;
mod worker;
