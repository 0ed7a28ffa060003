//! AUTH (RFC 4954): PLAIN, LOGIN, XOAUTH2.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::Login;
use super::command::{Stopped, ask, result_of};
use super::extensions::Extensions;
use super::outcome::Stage;
use super::wire::Wire;
use crate::secret_file;
use crate::transport::delivered::Delivered;

/// Authenticates, if there are credentials. [`super::Relay::new`] makes sure that the connection is encrypted then.
///
/// # Errors
/// The result of the message.
pub(super) async fn log_in(
    login: &Login,
    wire: &mut Wire,
    extensions: Extensions,
) -> Result<(), Stopped> {
    match login {
        Login::None => Ok(()),
        Login::Password { username, password } if extensions.plain => {
            let words = Zeroizing::new(format!("\0{username}\0{}", password.as_str()));
            finish(wire, "AUTH PLAIN ", &[&words]).await
        }
        Login::Password { username, password } if extensions.login => {
            finish(wire, "AUTH LOGIN", &["", username, password]).await
        }
        Login::Xoauth2 {
            username,
            token_file,
        } if extensions.xoauth2 => {
            let token =
                token(token_file).map_err(|reason| Box::new(Delivered::account_refused(reason)))?;
            let words = Zeroizing::new(format!(
                "user={username}\x01auth=Bearer {}\x01\x01",
                token.as_str()
            ));
            finish(wire, "AUTH XOAUTH2 ", &[&words]).await
        }
        _ => {
            let reason = "the server offers no supported AUTH mechanism";
            Err(Box::new(Delivered::account_refused(reason)))
        }
    }
}

/// Sends the command with the first word, and one more word for each 334 reply.
async fn finish(wire: &mut Wire, command: &str, words: &[&str]) -> Result<(), Stopped> {
    let mut words = words.iter();
    let mut command = command;
    loop {
        // After the last word, an empty line answers the error message of XOAUTH2 (334), and the server replies 535.
        let word = words.next().copied().unwrap_or_default();
        let encoded = Zeroizing::new(STANDARD.encode(word));
        let line = Zeroizing::new(format!("{command}{}\r\n", encoded.as_str()));
        let answer = ask(wire, &line).await?;
        match answer.code {
            235 => return Ok(()),
            334 if words.len() > 0 || !word.is_empty() => command = "",
            _ => return Err(result_of(&answer, Stage::Login)),
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
