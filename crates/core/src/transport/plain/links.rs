//! Where the links of HTML lead. Pure.

use html5gum::{Token, Tokenizer};

/// Maximum number of links.
const MOST: usize = 200;

/// The targets of the links of HTML, each once, in their order; of very many the first 200.
pub fn links(html: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for token in Tokenizer::new(html) {
        let Ok(Token::StartTag(tag)) = token else {
            continue;
        };
        if &tag.name[..] != b"a" && &tag.name[..] != b"area" {
            continue;
        }
        let Some(target) = tag.attributes.get(&b"href"[..]) else {
            continue;
        };
        let target = String::from_utf8_lossy(target).trim().to_owned();
        if !target.is_empty() && !found.contains(&target) {
            found.push(target);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_is_found_once() {
        let html = "<A HREF=' https://a/?x=1&amp;y=2 '>a</a> <a name=n>n</a><a href=\"mailto:b@c\">b</a>\
                    <!-- <a href=no> --><a href=https://a/?x=1&y=2>again</a><area href=/m>";
        let expected = ["https://a/?x=1&y=2", "mailto:b@c", "/m"];
        assert_eq!(links(html), expected);
    }
}
