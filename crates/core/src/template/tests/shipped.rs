//! The templates that come with mailroom.

use super::*;

#[test]
fn the_news_of_a_changed_password_needs_nothing_and_opens_nothing() {
    let mut engine = Engine::new();
    let news = BUILTIN
        .into_iter()
        .find(|builtin| builtin.kind == "password_changed")
        .unwrap();
    assert_eq!(engine.check(Part::Subject, news.subject), Ok(()));
    for (part, source) in [(Part::Text, news.body_text), (Part::Html, news.body_html)] {
        for (variables, greeting) in [
            (serde_json::json!({ "login": "alice" }), "Hello alice,"),
            (serde_json::json!({}), "Hello,"),
        ] {
            let rendered = engine
                .render(part, source, &Value::from(Serde(&variables)))
                .unwrap();
            assert!(rendered.contains(greeting), "{rendered}");
            // Its reader may not be the owner of the account, so it has no link.
            assert!(!rendered.contains("href"), "{rendered}");
        }
    }
}

#[test]
fn the_shipped_templates_hold_what_a_reader_needs() {
    let mut engine = Engine::new();
    for builtin in BUILTIN {
        if builtin.kind == "password_changed" {
            continue;
        }
        let parts = [
            (Part::Subject, builtin.subject),
            (Part::Text, builtin.body_text),
            (Part::Html, builtin.body_html),
        ];
        let mut variables =
            serde_json::json!({ "login": "o'alice", "token": "T0KEN", "code": "01234" });
        for (part, source) in parts {
            assert_eq!(engine.check(part, source), Ok(()), "{}", builtin.kind);
            if part == Part::Subject {
                continue;
            }
            let without_link = engine
                .render(part, source, &Value::from(Serde(&variables)))
                .unwrap();
            assert!(without_link.contains("T0KEN"), "{without_link}");
            assert!(!without_link.contains("href"), "{without_link}");
            assert!(!without_link.contains("until"), "{without_link}");
            variables["link"] = "https://example.com/recover?token=T0KEN&a=b".into();
            variables["expires_at"] = "2030-01-01 12:15 UTC".into();
            let with_link = engine
                .render(part, source, &Value::from(Serde(&variables)))
                .unwrap();
            let (name, link) = match part {
                Part::Html => (
                    "Hello o&#39;alice,",
                    "href=\"https://example.com/recover?token=T0KEN&amp;a=b\"",
                ),
                _ => (
                    "Hello o'alice,",
                    "\nhttps://example.com/recover?token=T0KEN&a=b\n",
                ),
            };
            for needed in [name, link, "until 2030-01-01 12:15 UTC", "ignore this mail"] {
                assert!(with_link.contains(needed), "{needed} in {with_link}");
            }
            let has_code = builtin.kind == "password_recovery";
            assert_eq!(with_link.contains("01234"), has_code);
            assert_eq!(without_link.contains("01234"), has_code);
            // Nothing is fetched, nothing runs.
            for unwanted in ["<img", "<script", "url(", "src=", "<link", "@import"] {
                assert!(!with_link.contains(unwanted), "{unwanted}");
            }
            variables
                .as_object_mut()
                .unwrap()
                .retain(|name, _| name != "link" && name != "expires_at");
        }
    }
}

/// Anyone may sign up with the address of another person, and so choose what that person reads.
#[test]
fn the_shipped_templates_do_not_repeat_a_message_of_a_stranger() {
    let mut engine = Engine::new();
    let login = "winner! claim 500 eur at https://evil.example/claim now.";
    for builtin in BUILTIN {
        for (part, source) in [
            (Part::Subject, builtin.subject),
            (Part::Text, builtin.body_text),
            (Part::Html, builtin.body_html),
        ] {
            for variables in [
                serde_json::json!({ "login": login, "token": "T0KEN", "code": "01234" }),
                serde_json::json!({ "token": "T0KEN", "code": "01234" }),
            ] {
                let rendered = engine
                    .render(part, source, &Value::from(Serde(&variables)))
                    .unwrap();
                for piece in ["winner", "evil", "500"] {
                    assert!(!rendered.contains(piece), "{piece} in {rendered}");
                }
                assert!(
                    part == Part::Subject || rendered.contains("Hello,"),
                    "{rendered}"
                );
            }
        }
    }
}
