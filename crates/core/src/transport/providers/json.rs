//! Requests with a JSON body. Pure.

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use hyper::http::HeaderValue;
use hyper::{HeaderMap, Uri};
use serde::Serialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::Request;

/// A request with this body and the headers of a JSON request.
///
/// # Errors
/// If the body cannot be serialized.
pub fn request(uri: Uri, body: &impl Serialize) -> Result<Request, String> {
    let text = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let json = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, json.clone());
    headers.insert(ACCEPT, json);
    Ok(Request {
        uri,
        headers,
        body: Bytes::from(text),
    })
}

/// The value of an `Authorization` header with this token.
pub fn bearer(token: &str) -> Zeroizing<String> {
    Zeroizing::new(format!("Bearer {token}"))
}

/// Adds a sensitive header, which no library may show.
///
/// # Errors
/// If the value cannot be a header, because of a line break for example. The value is not quoted.
pub fn secret_header(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), String> {
    let mut value = header_value(value, &name)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// A header value.
///
/// # Errors
/// If the value cannot be a header, because of a line break for example. The value is not quoted.
pub fn header_value(value: &str, name: &HeaderName) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value)
        .map_err(|_| format!("{name} has a character that no header may have"))
}

/// Adds a member unless it is `None`.
pub fn put_some(object: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value.into());
    }
}

/// The body of a response; `Null` if it is not JSON.
pub fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or(Value::Null)
}
