//! `postgresql://user:password@host:port,host:port/database?option=value`. Pure.

use super::{Options, Problem, problem};

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Whether this is meant to be a URL.
pub fn is_url(given: &str) -> bool {
    SCHEMES.iter().any(|scheme| given.starts_with(scheme))
}

/// The options that a URL gives.
///
/// # Errors
/// What is wrong with it, without any value.
pub fn parse(given: &str) -> Result<Options, Problem> {
    let rest = SCHEMES
        .iter()
        .find_map(|scheme| given.strip_prefix(scheme))
        .unwrap_or(given);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let mut options = Options::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            options.insert(name.to_owned(), value);
        }
    };
    // A password may hold an @ that was not encoded.
    let places = match authority.rsplit_once('@') {
        Some((account, places)) => {
            let (user, password) = account.split_once(':').unwrap_or((account, ""));
            put("user", decode(user)?);
            put("password", decode(password)?);
            places
        }
        None => authority,
    };
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for place in places.split(',') {
        let (host, port) = split_place(place)?;
        hosts.push(decode(host)?);
        ports.push(decode(port)?);
    }
    if hosts.iter().any(|host| !host.is_empty()) {
        put("host", hosts.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        put("port", ports.join(","));
    }
    put("dbname", decode(database)?);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return problem("an option of the URL has no value");
        };
        let (name, value) = (decode(name)?, decode(value)?);
        // JDBC's, which libpq takes, too.
        if name == "ssl" && value == "true" {
            put("sslmode", "require".to_owned());
        } else {
            put(&name, value);
        }
    }
    Ok(options)
}

/// Host and port; an address of IPv6 is in brackets.
fn split_place(place: &str) -> Result<(&str, &str), Problem> {
    let Some(rest) = place.strip_prefix('[') else {
        return Ok(place.split_once(':').unwrap_or((place, "")));
    };
    match rest.split_once(']') {
        Some((host, "")) => Ok((host, "")),
        Some((host, rest)) if rest.starts_with(':') => Ok((host, &rest[1..])),
        _ => problem("an address in the URL has no closing bracket"),
    }
}

/// Without percent signs.
fn decode(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if byte != 0 => bytes.push(byte),
            _ => return problem("the URL holds a % that no byte follows"),
        }
        rest = &tail[2..];
    }
    String::from_utf8(bytes).or_else(|_| problem("the URL holds bytes that are not UTF-8"))
}
