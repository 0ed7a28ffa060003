//! Keyword strings: `host=… dbname='…'`. Pure.

use std::iter::Peekable;
use std::str::Chars;

use super::names::check_name;
use super::{ConninfoError, Options, problem};

/// Parses a keyword string.
///
/// # Errors
/// The error, without any value.
pub fn parse(given: &str) -> Result<Options, ConninfoError> {
    let mut options = Options::new();
    let mut rest = given.chars().peekable();
    for number in 1.. {
        skip_space(&mut rest);
        if rest.peek().is_none() {
            break;
        }
        let mut name = String::new();
        while let Some(&c) = rest.peek() {
            if c == '=' || c.is_ascii_whitespace() {
                break;
            }
            name.push(c);
            rest.next();
        }
        skip_space(&mut rest);
        if rest.next() != Some('=') {
            return problem("the connection string has a word without \"=\" after it");
        }
        check_name(&name, number, "a value with a space needs quotes")?;
        skip_space(&mut rest);
        let value = match rest.peek() {
            Some('\'') => {
                rest.next();
                quoted(&mut rest)?
            }
            _ => plain(&mut rest),
        };
        options.insert(name, value);
    }
    Ok(options)
}

fn skip_space(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(char::is_ascii_whitespace).is_some() {}
}

fn quoted(rest: &mut Peekable<Chars<'_>>) -> Result<String, ConninfoError> {
    let mut value = String::new();
    loop {
        match rest.next() {
            Some('\'') => return Ok(value),
            Some('\\') => value.extend(rest.next()),
            Some(c) => value.push(c),
            None => return problem("the connection string has a quote that is not closed"),
        }
    }
}

fn plain(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    while let Some(c) = rest.next_if(|c| !c.is_ascii_whitespace()) {
        match c {
            '\\' => value.extend(rest.next()),
            c => value.push(c),
        }
    }
    value
}
