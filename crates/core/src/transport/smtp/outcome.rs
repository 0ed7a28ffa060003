//! What a reply means for a message. Pure.
//!
//! | reply | outcome |
//! |---|---|
//! | 4.2.z, or 4yz with a code of [`NAMES_RECIPIENT`], to RCPT, or to the content if there is one recipient | `RecipientDeferred` |
//! | 4.7.z and 4.3.2, except to STARTTLS, where 454 4.7.0 concerns TLS alone; 421 to connection, EHLO or MAIL; 432 and 454 to MAIL, RCPT, DATA or the content | `Throttled` |
//! | any other 4yz | `Retry` |
//! | 530 | `AccountRefused`: credentials or TLS required |
//! | 502 and 504 to AUTH | `AccountRefused`: the mechanisms |
//! | 534, 535, 538, 5.7.8, 5.7.9 | `AccountRefused`: credentials |
//! | 5.4.5 | `AccountRefused`: quota of the account |
//! | 5yz to connection, EHLO, STARTTLS, AUTH | `AccountRefused` |
//! | 5.7.z to MAIL; 5.1.7 and 5.1.8 to MAIL or RCPT (Postfix checks the sender at RCPT) | `AccountRefused`: sender |
//! | a code of [`NAMES_RECIPIENT`] to RCPT, or to the content if there is one recipient | `RecipientRefused` |
//! | any other 5yz | `Refused` |
//! | any other code | `Retry` |
//!
//! Beside an accepted recipient, any 4yz to RCPT but 421 is `RecipientDeferred`, which `transaction` decides.

use super::reply::Reply;
use crate::transport::providers::MessageOutcome;

/// Whether an enhanced status code, as `5.1.1`, says for good that the recipient does not exist or accepts no mail.
pub fn names_mailbox(status: &str) -> bool {
    let mut parts = status.split('.').map(|part| part.parse::<u16>().ok());
    let (Some(Some(5)), Some(Some(subject)), Some(Some(detail)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    is_of_mailbox((subject, detail))
}

fn is_of_mailbox(code: (u16, u16)) -> bool {
    NAMES_RECIPIENT.contains(&code) && code != FULL
}

/// Whether a reply to RCPT says what [`names_mailbox`] does.
pub(super) fn refuses_mailbox(reply: &Reply) -> bool {
    let code = reply.enhanced.map(|code| (code.subject, code.detail));
    reply.is_final() && code.is_some_and(is_of_mailbox)
}

/// What the server replies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The connection or EHLO.
    Hello,
    /// STARTTLS.
    Tls,
    /// AUTH.
    Login,
    /// MAIL.
    Sender,
    /// RCPT.
    Recipient,
    /// DATA or the content of a message to one recipient.
    TextToOne,
    /// DATA or the content of a message to several recipients.
    TextToSeveral,
}

/// Enhanced codes (subject, detail) that say that the recipient does not exist or accepts no mail: bad mailbox, domain or
/// syntax, moved, null MX, disabled, full.
///
/// 5.4.1 and 5.4.4 are left out: some servers reply so to any recipient that they do not relay to, which is a matter of
/// configuration, and configuration never ends a message.
const NAMES_RECIPIENT: [(u16, u16); 7] = [(1, 1), (1, 2), (1, 3), (1, 6), (1, 10), (2, 1), (2, 2)];
/// That a mailbox is full passes.
const FULL: (u16, u16) = (2, 2);
/// The subject of enhanced codes on the state of a mailbox.
const MAILBOX: u16 = 2;
/// The subject of enhanced codes on security and policy, which limits of rates belong to.
const POLICY: u16 = 7;
/// The enhanced code that says that the system accepts no messages now.
const BUSY: [(u16, u16); 1] = [(3, 2)];
/// The enhanced code that says that a transaction has too many recipients.
const TOO_MANY: [(u16, u16); 1] = [(5, 3)];
/// Codes, and enhanced codes, that say that credentials are wrong or too weak.
const LOGIN_CODES: [u16; 3] = [534, 535, 538];
const LOGIN: [(u16, u16); 2] = [(7, 8), (7, 9)];
/// Enhanced codes that say that the sender's address is invalid.
const SENDER: [(u16, u16); 2] = [(1, 7), (1, 8)];
/// The enhanced code that says that the account has used up its quota, e.g. of Gmail.
const QUOTA: [(u16, u16); 1] = [(4, 5)];

/// The outcome of a reply other than the expected one.
pub(super) fn of(reply: &Reply, stage: Stage) -> MessageOutcome {
    if reply.is_final() {
        of_final(reply, stage)
    } else if reply.is_temporary() {
        let (reason, after) = (reply.reason(), None);
        if matches!(stage, Stage::Recipient | Stage::TextToOne) && names_recipient(reply) {
            MessageOutcome::RecipientDeferred { reason }
        } else if asks_for_less(reply, stage) {
            MessageOutcome::Throttled { reason, after }
        } else {
            MessageOutcome::Retry { reason, after }
        }
    } else {
        MessageOutcome::Retry {
            reason: format!("{}: out of order", reply.reason()),
            after: None,
        }
    }
}

/// Whether a temporary reply asks for fewer messages or connections. By the codes alone: 421 is what a server says that has
/// too many connections, 432 is Exchange's, and 454 Amazon SES's.
fn asks_for_less(reply: &Reply, stage: Stage) -> bool {
    let is_limit = reply
        .enhanced
        .is_some_and(|code| code.subject == POLICY || code.is_any(&BUSY));
    match (reply.code, stage) {
        (_, Stage::Tls) => false,
        (421, Stage::Hello | Stage::Sender) => true,
        (_, Stage::Hello | Stage::Login) => is_limit,
        (code, _) => is_limit || matches!(code, 432 | 454),
    }
}

/// Whether a temporary reply concerns this recipient alone: a greylisting server replies so to each new one.
fn names_recipient(reply: &Reply) -> bool {
    reply
        .enhanced
        .is_some_and(|code| code.subject == MAILBOX || code.is_any(&NAMES_RECIPIENT))
}

/// Whether a reply to RCPT after an accepted one has the recipient named in another transaction (RFC 5321, section
/// 4.5.3.1.10). 452 without an enhanced code is what Exim says and that section asks for; x.5.3 has both classes (RFC 3463).
pub(super) fn is_one_too_many(reply: &Reply) -> bool {
    match reply.enhanced {
        Some(code) => code.is_any(&TOO_MANY),
        None => reply.code == 452,
    }
}

fn of_final(reply: &Reply, stage: Stage) -> MessageOutcome {
    let has = |known: &[(u16, u16)]| reply.enhanced.is_some_and(|code| code.is_any(known));
    let is_policy = reply.enhanced.is_some_and(|code| code.subject == POLICY);
    let broken = |why: &str| MessageOutcome::AccountRefused {
        reason: format!("{}: {why}", reply.reason()),
    };
    let reason = reply.reason();
    if reply.code == 530 {
        return broken("the server requires authentication or TLS");
    }
    if stage == Stage::Login && matches!(reply.code, 502 | 504) {
        return broken("the server refuses the AUTH mechanisms that it offers");
    }
    if LOGIN_CODES.contains(&reply.code) || has(&LOGIN) || stage == Stage::Login {
        return broken("the credentials were refused");
    }
    if has(&QUOTA) {
        return broken("the account cannot send");
    }
    match stage {
        Stage::Hello => broken("the server takes no mail from here"),
        Stage::Tls => broken("the server does not speak TLS"),
        Stage::Sender if is_policy || has(&SENDER) => broken("the sender was refused"),
        Stage::Recipient if has(&SENDER) => broken("the sender was refused"),
        Stage::Recipient | Stage::TextToOne if has(&NAMES_RECIPIENT) => {
            let is_permanent = refuses_mailbox(reply);
            MessageOutcome::RecipientRefused {
                reason,
                is_permanent,
            }
        }
        _ => MessageOutcome::Refused { reason },
    }
}
