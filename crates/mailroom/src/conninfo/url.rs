//! URLs: `postgresql://user:password@host:port,host:port/database?option=value`. Pure.

use super::names::check_name;
use super::{ConninfoError, Options, problem};

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Whether the string has the form of a URL.
pub fn is_url(given: &str) -> bool {
    SCHEMES.iter().any(|scheme| given.starts_with(scheme))
}

/// Parses a URL.
///
/// # Errors
/// The error, without any value.
pub fn parse(given: &str) -> Result<Options, ConninfoError> {
    let rest = SCHEMES
        .iter()
        .find_map(|scheme| given.strip_prefix(scheme))
        .unwrap_or(given);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains('@') {
        return problem("the URL has an @ after its hosts; in a password, / is %2F and @ is %40");
    }
    let mut options = Options::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            options.insert(name.to_owned(), value);
        }
    };
    // A password may contain an @ that is not encoded.
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
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        let Some((name, value)) = pair.split_once('=') else {
            return problem("an option of the URL has no value");
        };
        let (name, value) = (decode(name)?, decode(value)?);
        // A parameter of JDBC, which libpq accepts too.
        if name == "ssl" && value == "true" {
            put("sslmode", "require".to_owned());
        } else {
            check_name(&name, index + 1, "in a value, & is %26")?;
            put(&name, value);
        }
    }
    Ok(options)
}

/// Splits host and port; an IPv6 address is in brackets.
fn split_place(place: &str) -> Result<(&str, &str), ConninfoError> {
    let Some(rest) = place.strip_prefix('[') else {
        return Ok(place.split_once(':').unwrap_or((place, "")));
    };
    match rest.split_once(']') {
        Some((host, "")) => Ok((host, "")),
        Some((host, rest)) if rest.starts_with(':') => Ok((host, &rest[1..])),
        _ => problem("an address in the URL has no closing bracket"),
    }
}

/// Decodes percent-encoded characters.
fn decode(text: &str) -> Result<String, ConninfoError> {
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
