//! Requests with a form as their body: fields, and files beside them. Pure.

use super::mac::sha256_hex;

/// Bytes of the digest in a boundary, in hexadecimal.
const DIGEST: usize = 32;

/// A file of a form.
pub struct File<'a> {
    /// The name of its field.
    pub field: &'a str,
    /// Its own name, without control characters.
    pub filename: &'a str,
    /// One line of ASCII.
    pub content_type: &'a str,
    /// The contents.
    pub content: &'a [u8],
}

/// The content type and the body of a form without files.
pub fn url_encoded(fields: &[(String, String)]) -> (String, Vec<u8>) {
    let mut form = String::new();
    for (name, value) in fields {
        if !form.is_empty() {
            form.push('&');
        }
        encode(name, &mut form);
        form.push('=');
        encode(value, &mut form);
    }
    (
        "application/x-www-form-urlencoded".to_owned(),
        form.into_bytes(),
    )
}

/// Encodes as `application/x-www-form-urlencoded`.
fn encode(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// The content type and the body of a form with files, as browsers write it: names are UTF-8 in quotes. The boundary
/// follows from the id of the message, so that equal messages have equal bodies.
pub fn multipart(id: &str, fields: &[(String, String)], files: &[File<'_>]) -> (String, Vec<u8>) {
    let values = fields.iter().map(|(_, value)| value.as_bytes());
    let contents = files.iter().map(|file| file.content);
    let contents: Vec<&[u8]> = values.chain(contents).collect();
    let boundary = boundary(id, &contents);
    let size: usize = contents.iter().map(|content| content.len() + 512).sum();
    let mut body = Vec::with_capacity(size);
    for (name, value) in fields {
        let name = quoted(name);
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name={name}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value.as_bytes());
        body.extend_from_slice(b"\r\n");
    }
    for file in files {
        let (field, filename) = (quoted(file.field), quoted(file.filename));
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name={field}; filename={filename}\r\n\
            Content-Type: {}\r\n\r\n",
            file.content_type
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file.content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// A name in quotes, with the escapes of HTML's forms.
fn quoted(name: &str) -> String {
    let name = name.replace('"', "%22");
    let name = name.replace('\r', "%0D").replace('\n', "%0A");
    format!("\"{name}\"")
}

/// A boundary with which no line of these contents begins.
fn boundary(id: &str, contents: &[&[u8]]) -> String {
    let digest = sha256_hex(id.as_bytes());
    let mut delimiter = format!("--mailroom-{}", &digest[..DIGEST]);
    let is_in = |content: &&[u8], delimiter: &str| {
        let mut lines = content.split(|byte| *byte == b'\n');
        lines.any(|line| line.starts_with(delimiter.as_bytes()))
    };
    while contents.iter().any(|content| is_in(content, &delimiter)) {
        delimiter.push('x');
    }
    delimiter.split_off(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![pair("to", "Zoë <z@example.com>"), pair("text", "a\r\nb")]
    }

    fn file(content: &[u8]) -> File<'_> {
        File {
            field: "attachment",
            filename: "für \"Zoë\".txt",
            content_type: "text/plain; charset=utf-8",
            content,
        }
    }

    #[test]
    fn a_form_with_a_file() {
        let (content_type, body) = multipart("id", &fields(), &[file(b"\0\xff\r\n")]);
        // printf id | sha256sum
        let boundary = "mailroom-a56145270ce6b3bebd1dd012b73948677dd618d496488bc608a3cb43ce3547dd";
        let boundary = &boundary[.."mailroom-".len() + DIGEST];
        assert_eq!(
            content_type,
            format!("multipart/form-data; boundary={boundary}")
        );
        let text = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\nZoë <z@example.com>\r\n\
            --{boundary}\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\na\r\nb\r\n\
            --{boundary}\r\nContent-Disposition: form-data; name=\"attachment\"; filename=\"für %22Zoë%22.txt\"\r\n\
            Content-Type: text/plain; charset=utf-8\r\n\r\n"
        );
        let end = format!("\r\n--{boundary}--\r\n");
        let expected = [text.as_bytes(), b"\0\xff\r\n", end.as_bytes()].concat();
        assert_eq!(body, expected);
    }

    #[test]
    fn a_boundary_is_in_no_content() {
        let of = |content: &[u8]| {
            let (content_type, _) = multipart("id", &fields(), &[file(content)]);
            content_type.split_once('=').unwrap().1.to_owned()
        };
        let usual = of(b"");
        assert_eq!(of(format!("a --{usual}").as_bytes()), usual);
        let other = of(format!("a\r\n--{usual}\r\n").as_bytes());
        assert_eq!(other, format!("{usual}x"));
        let both = format!("--{usual}\n--{other}--");
        assert_eq!(of(both.as_bytes()), format!("{other}x"));
        assert_ne!(boundary("id", &[]), boundary("another id", &[]));
    }
}
