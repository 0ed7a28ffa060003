//! The content type of a file: its syntax, and which types an extension may have. Pure.
//!
//! Resend drops a mail without a word if the type of a file is not that of its extension, so another one is refused. It
//! takes any type with an extension that it does not know.

use crate::line::{self, Named};

/// Maximum octets of a type with its parameters: that of SES.
const CONTENT_TYPE_MAX: usize = 78;
/// The type of a file whose extension is not known.
const UNKNOWN: &str = "application/octet-stream";

/// The types of an extension in lower case: first that of a file without one, then other names of the same; none for an
/// extension that is not known.
fn types(extension: &str) -> &'static [&'static str] {
    match extension {
        // Text.
        "csv" => &["text/csv", "application/csv", "text/x-csv"],
        "htm" | "html" => &["text/html"],
        "ics" => &["text/calendar", "application/ics"],
        "json" => &["application/json", "text/json"],
        "log" | "txt" => &["text/plain"],
        "md" => &["text/markdown", "text/x-markdown"],
        "rtf" => &["application/rtf", "text/rtf"],
        "vcf" => &["text/vcard", "text/x-vcard", "text/directory"],
        "xml" => &["application/xml", "text/xml"],
        // Documents.
        "doc" => &["application/msword"],
        "docx" => &["application/vnd.openxmlformats-officedocument.wordprocessingml.document"],
        "epub" => &["application/epub+zip"],
        "odp" => &["application/vnd.oasis.opendocument.presentation"],
        "ods" => &["application/vnd.oasis.opendocument.spreadsheet"],
        "odt" => &["application/vnd.oasis.opendocument.text"],
        "pdf" => &["application/pdf"],
        "ppt" => &["application/vnd.ms-powerpoint"],
        "pptx" => &["application/vnd.openxmlformats-officedocument.presentationml.presentation"],
        "xls" => &["application/vnd.ms-excel"],
        "xlsx" => &["application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"],
        // Archives, and signatures.
        "7z" => &["application/x-7z-compressed"],
        "gz" => &["application/gzip", "application/x-gzip"],
        "p7s" => &[
            "application/pkcs7-signature",
            "application/x-pkcs7-signature",
        ],
        "rar" => &[
            "application/vnd.rar",
            "application/x-rar-compressed",
            "application/x-rar",
        ],
        "tar" => &["application/x-tar"],
        "zip" => &[
            "application/zip",
            "application/x-zip-compressed",
            "application/x-zip",
        ],
        // Images.
        "avif" => &["image/avif"],
        "bmp" => &["image/bmp", "image/x-ms-bmp"],
        "gif" => &["image/gif"],
        "heic" => &["image/heic"],
        "ico" => &["image/vnd.microsoft.icon", "image/x-icon"],
        "jpeg" | "jpg" => &["image/jpeg", "image/jpg", "image/pjpeg"],
        "png" => &["image/png"],
        "svg" => &["image/svg+xml"],
        "tif" | "tiff" => &["image/tiff"],
        "webp" => &["image/webp"],
        // Sound and films.
        "m4a" => &["audio/mp4", "audio/x-m4a"],
        "mov" => &["video/quicktime"],
        "mp3" => &["audio/mpeg", "audio/mp3"],
        "mp4" => &["video/mp4"],
        "ogg" => &["audio/ogg", "application/ogg"],
        "wav" => &["audio/wav", "audio/x-wav", "audio/vnd.wave"],
        "webm" => &["video/webm"],
        _ => &[],
    }
}

/// The type of a file with this extension in lower case.
pub(super) fn of_extension(extension: &str) -> &'static str {
    types(extension).first().copied().unwrap_or(UNKNOWN)
}

/// Checks a type for a file with this extension in lower case.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(content_type: &str, extension: &str) -> Result<(), String> {
    let octets = content_type.len();
    if octets > CONTENT_TYPE_MAX {
        return Err(format!(
            "content_type has {octets} octets, at most {CONTENT_TYPE_MAX} are allowed"
        ));
    }
    if let Some(found) = line::first_control(content_type) {
        return Err(format!(
            "content_type contains the control character {}",
            Named(found)
        ));
    }
    if !content_type.is_ascii() {
        return Err("content_type has letters beyond ASCII".to_owned());
    }
    let Some((media, parameters)) = parse(content_type) else {
        return Err("content_type is not as in text/plain; charset=utf-8".to_owned());
    };
    let media = media.to_ascii_lowercase();
    if media.starts_with("multipart/") || media.starts_with("message/") {
        return Err("content_type is multipart or message, which no file may be".to_owned());
    }
    let is_name = |name: &&str| {
        let name = name.to_ascii_lowercase();
        ["name", "filename"].contains(&name.split('*').next().unwrap_or_default())
    };
    if parameters.iter().any(is_name) {
        return Err("content_type has the name of a file, which is made of filename".to_owned());
    }
    match types(extension) {
        [first, ..] if !types(extension).contains(&media.as_str()) => Err(format!(
            "content_type is not that of the extension {extension}, which is {first}"
        )),
        _ => Ok(()),
    }
}

/// The media type, and the names of its parameters (RFC 2045, section 5.1); `None` if it is none.
fn parse(content_type: &str) -> Option<(&str, Vec<&str>)> {
    let end = content_type.find(';').unwrap_or(content_type.len());
    let (media, mut rest) = content_type.split_at(end);
    let media = media.trim_end_matches(' ');
    let (kind, subtype) = media.split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix(';')?.split_once('=')?;
        let name = name.trim_start_matches(' ');
        if !is_token(name) {
            return None;
        }
        names.push(name);
        rest = match after.strip_prefix('"') {
            Some(quoted) => after_quotes(quoted)?,
            None => {
                let end = after.find([';', ' ']).unwrap_or(after.len());
                let (value, after) = after.split_at(end);
                if !is_token(value) {
                    return None;
                }
                after
            }
        };
        rest = rest.trim_start_matches(' ');
    }
    Some((media, names))
}

/// What follows the quote that ends this.
fn after_quotes(text: &str) -> Option<&str> {
    let mut is_escaped = false;
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return text.get(place + 1..),
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_known_extension_has_its_types_only() {
        for (extension, content_type) in [
            ("pdf", "application/pdf"),
            ("pdf", "Application/PDF"),
            ("xml", "text/xml"),
            ("xml", "application/xml; charset=utf-8"),
            ("zip", "application/x-zip-compressed"),
            ("jpg", "image/jpg"),
            ("ics", "text/calendar; method=REQUEST; charset=utf-8"),
            ("txt", "text/plain;charset=\"iso-8859-1\" ; format=flowed"),
            ("xyz", "application/pdf"),
            ("xyz", "application/x-anything"),
        ] {
            assert_eq!(check(content_type, extension), Ok(()), "{content_type}");
        }
        for content_type in ["application/octet-stream", "image/png", "application/pdfs"] {
            assert_eq!(
                check(content_type, "pdf").unwrap_err(),
                "content_type is not that of the extension pdf, which is application/pdf"
            );
        }
    }

    #[test]
    fn what_is_no_content_type() {
        for bad in [
            "",
            "text",
            "text/",
            "/plain",
            " text/plain",
            "text /plain",
            "text/plain/x",
            "text/plain;",
            "text/plain; charset",
            "text/plain; charset=",
            "text/plain; =utf-8",
            "text/plain; charset=\"utf-8",
            "text/plain; charset=\"utf-8\\\"",
            "text/plain; charset=utf-8 x",
            "text/plain, text/html",
            "text/plain; a=b; c=<d>",
        ] {
            assert_eq!(
                check(bad, "txt").unwrap_err(),
                "content_type is not as in text/plain; charset=utf-8",
                "{bad}"
            );
        }
        for (bad, problem) in [
            (
                "Multipart/mixed; boundary=x",
                "content_type is multipart or message, which no file may be",
            ),
            (
                "message/rfc822",
                "content_type is multipart or message, which no file may be",
            ),
            (
                "application/x-y; NAME=z",
                "content_type has the name of a file, which is made of filename",
            ),
            (
                "application/x-y; name*0=z",
                "content_type has the name of a file, which is made of filename",
            ),
            (
                "application/x-y\r\nBcc: b@example.com",
                "content_type contains the control character U+000D",
            ),
            ("text/plän", "content_type has letters beyond ASCII"),
        ] {
            assert_eq!(check(bad, "xyz").unwrap_err(), problem);
        }
        let long = |count: usize| format!("text/{}", "a".repeat(count - 5));
        assert_eq!(check(&long(78), "xyz"), Ok(()));
        assert_eq!(
            check(&long(79), "xyz").unwrap_err(),
            "content_type has 79 octets, at most 78 are allowed"
        );
    }

    #[test]
    fn each_type_of_the_table_is_one() {
        let names = include_str!("content_type.rs")
            .split('"')
            .skip(1)
            .step_by(2);
        let known: Vec<&str> = names.filter(|name| !types(name).is_empty()).collect();
        assert!(known.len() >= 40, "{known:?}");
        for extension in known {
            for content_type in types(extension) {
                assert_eq!(check(content_type, extension), Ok(()), "{content_type}");
            }
            assert_eq!(of_extension(extension), types(extension)[0]);
        }
        assert_eq!(of_extension("xyz"), UNKNOWN);
    }

    proptest! {
        #[test]
        fn what_passes_is_one_line_of_ascii(text in "[a-z]{1,5}/[a-z.+-]{1,9}(;? ?[a-z]{0,3}=?\"?.{0,9}\"?){0,3}|.{0,30}") {
            if check(&text, "xyz").is_ok() {
                prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
        }
    }
}
