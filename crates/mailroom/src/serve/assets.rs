//! Style sheet, script and icon, under a name that changes with them.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use sha2::{Digest, Sha256};

use super::response::answer;
use crate::http_server::{Answer, with};

const ASSETS: [(&str, &str, &[u8]); 3] = [
    (
        "page.css",
        "text/css; charset=utf-8",
        include_bytes!("assets/page.css"),
    ),
    (
        "page.js",
        "text/javascript; charset=utf-8",
        include_bytes!("assets/page.js"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_bytes!("assets/icon.svg"),
    ),
];

/// The segment of a path that changes with the assets.
pub fn version() -> String {
    let mut hash = Sha256::new();
    for (_, _, content) in ASSETS {
        hash.update(content);
    }
    let hash = hash.finalize();
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The asset of this name.
pub fn find(name: &str) -> Option<Answer> {
    let (_, kind, content) = ASSETS.into_iter().find(|(known, _, _)| *known == name)?;
    let immutable = HeaderValue::from_static("public, max-age=31536000, immutable");
    Some(with(
        answer(StatusCode::OK, kind, content),
        CACHE_CONTROL,
        immutable,
    ))
}
