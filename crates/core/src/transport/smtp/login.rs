//! AUTH (RFC 4954): PLAIN, LOGIN, XOAUTH2.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::Login;
use super::command::{Stopped, ask, result_of};
use super::extensions::Extensions;
use super::outcome::Stage;
use super::reply::Reply;
use super::wire::Wire;
use crate::secret_file;
use crate::transport::delivered::Delivered;

/// The replies that refuse a mechanism, not the credentials: not implemented, unknown, too weak (RFC 4954, sections 4 and 6).
const REFUSES_MECHANISM: [u16; 3] = [502, 504, 534];

/// What a client says: the command with its first word, and the words that follow.
struct Attempt {
    command: &'static str,
    words: Vec<Zeroizing<String>>,
}

/// Authenticates, if there are credentials. The network policy makes sure that the connection is encrypted then, or does not
/// leave this machine.
///
/// A server that does not accept a mechanism is asked for the next one that both know. Wrong credentials end the attempt: a
/// second try would count against the account.
///
/// # Errors
/// The result of the message.
pub(super) async fn log_in(
    login: &Login,
    wire: &mut Wire,
    extensions: Extensions,
) -> Result<(), Stopped> {
    if matches!(login, Login::None) {
        return Ok(());
    }
    let attempts = attempts(login, extensions)
        .map_err(|reason| Box::new(Delivered::account_refused(reason)))?;
    let mut refusal = None;
    for attempt in attempts {
        let answer = exchange(wire, &attempt).await?;
        match answer.code {
            235 => return Ok(()),
            code if REFUSES_MECHANISM.contains(&code) => refusal = Some(answer),
            _ => return Err(result_of(&answer, Stage::Login)),
        }
    }
    Err(match refusal {
        Some(answer) => result_of(&answer, Stage::Login),
        None => Box::new(Delivered::account_refused(
            "the server offers no supported AUTH mechanism",
        )),
    })
}

/// Each mechanism that the server offers and the login has, in the order in which they are tried.
///
/// # Errors
/// Why the credentials cannot be read.
fn attempts(login: &Login, extensions: Extensions) -> Result<Vec<Attempt>, String> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| Zeroizing::new((*word).to_owned()))
            .collect()
    };
    let mut attempts = Vec::new();
    match login {
        Login::None => {}
        Login::Password { username, password } => {
            if extensions.plain {
                let both = Zeroizing::new(format!("\0{username}\0{}", password.as_str()));
                attempts.push(Attempt {
                    command: "AUTH PLAIN ",
                    words: vec![both],
                });
            }
            if extensions.login {
                attempts.push(Attempt {
                    command: "AUTH LOGIN",
                    words: words(&["", username, password]),
                });
            }
        }
        Login::Xoauth2 {
            username,
            token_file,
        } => {
            if extensions.xoauth2 {
                let token = token(token_file)?;
                let both = format!("user={username}\x01auth=Bearer {}\x01\x01", token.as_str());
                attempts.push(Attempt {
                    command: "AUTH XOAUTH2 ",
                    words: vec![Zeroizing::new(both)],
                });
            }
        }
    }
    Ok(attempts)
}

/// Sends the command with the first word, and one more word for each 334 reply. Returns the reply that ends the exchange.
async fn exchange(wire: &mut Wire, attempt: &Attempt) -> Result<Reply, Stopped> {
    let mut words = attempt.words.iter();
    let mut command = attempt.command;
    loop {
        // After the last word, an empty line answers the error message of XOAUTH2 (334), and the server replies 535.
        let word = words.next().map_or("", |word| word.as_str());
        let encoded = Zeroizing::new(STANDARD.encode(word));
        let line = Zeroizing::new(format!("{command}{}\r\n", encoded.as_str()));
        let answer = ask(wire, &line).await?;
        match answer.code {
            334 if words.len() > 0 || !word.is_empty() => command = "",
            _ => return Ok(answer),
        }
    }
}

/// Reads the access token from its file.
fn token(path: &Path) -> Result<Zeroizing<String>, String> {
    let (content, _) = secret_file::read(path)
        .map_err(|problem| format!("token file \"{}\" {problem}", path.display()))?;
    let token = content.trim_ascii();
    if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
        return Err(format!(
            "token file \"{}\" does not hold a token",
            path.display()
        ));
    }
    std::str::from_utf8(token)
        .map(|token| Zeroizing::new(token.to_owned()))
        .map_err(|error| error.to_string())
}
