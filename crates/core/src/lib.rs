//! The part of mailroom that needs no database: tokens, templates, and delivery.
//!
//! | module | owns |
//! |---|---|
//! | [`token`] | the wire format of links: sign, parse, verify; and the key file |
//! | [`secret_file`] | reading files that contain secrets |
//! | [`address`] | the syntax of mail addresses, and when two are one mailbox |
//! | [`line`] | text of one line, and how an error shows it |
//! | [`template`] | checking and rendering templates, and the built-in templates |
//! | [`mask`] | masking secrets in text for logs |
//! | [`message`] | a claimed message |
//! | [`scheduling`] | the rules for a message that an application schedules |
//! | [`attachment`] | a file of a message, and the rules for it |
//! | [`headers`] | headers that an application may add to a message |
//! | [`row`] | reading a claimed mail by the names of columns |
//! | [`batching`] | when to collect a batch of tokens |
//! | [`purge`] | when to purge, and how much at a time |
//! | [`backoff`] | consecutive failures: when to retry, and when to log |
//! | [`events`] | what became of mail: the events that providers post, verified |
//! | [`deliver`] | which claimed mail is sent when, and how it is settled |
//! | [`transport`] | providers and relays, and sending to them |

#![forbid(unsafe_code)]

pub mod address;
pub mod attachment;
pub mod backoff;
pub mod batching;
pub mod deliver;
pub mod events;
pub mod headers;
pub mod line;
pub mod mask;
pub mod message;
pub mod purge;
pub mod row;
pub mod scheduling;
pub mod secret_file;
pub mod template;
pub mod token;
pub mod transport;
