//! Variables that are missing or null.

use super::*;

/// Both states in which `name` has no value.
fn without_name() -> [serde_json::Value; 2] {
    [serde_json::json!({}), serde_json::json!({ "name": null })]
}

#[test]
fn they_are_never_written() {
    for variables in without_name() {
        for part in [Part::Subject, Part::Text, Part::Html] {
            for source in [
                "{{ name }}",
                "{{ name and 'a' }}",
                "{{ name or nothing }}",
                "{{ name if true }}",
                "{{ name[:2] }}",
                "{{ name[:2] | join }}",
                "{{ name.first }}",
                "{{ name.first.letter }}",
                "{% set copy = name %}{{ copy }}",
                "{% if not name %}{{ name }}{% endif %}",
            ] {
                let said = render(part, source, variables.clone()).unwrap_err();
                assert!(
                    said.contains("undefined or null") || said.contains("invalid operation"),
                    "{source}: {said}"
                );
            }
        }
    }
    // Some operations take null for text or for an empty list, but not what is missing.
    for source in [
        "{{ name | safe }}",
        "{{ name | upper }}",
        "{{ 'Dear ' ~ name }}",
        "{% for letter in name %}{% endfor %}",
    ] {
        assert!(text(source, serde_json::json!({})).is_err(), "{source}");
    }
}

#[test]
fn a_template_can_do_without_them() {
    for variables in without_name() {
        for (source, expected) in [
            ("{{ name or 'you' }}", "you"),
            ("{{ name | default('you', true) }}", "you"),
            ("{{ 'Dear ' ~ (name or 'you') }}", "Dear you"),
            (
                "{% if name %}Dear {{ name }}{% else %}Hello{% endif %}",
                "Hello",
            ),
            ("{{ 'Dear' if name else 'Hello' }}", "Hello"),
            ("{{ 'Dear' if name }}", ""),
            ("{% if not name %}Hello{% endif %}", "Hello"),
            ("{% if name and name.first %}Dear{% endif %}", ""),
            (
                "{% if name is defined and name is not none %}Dear{% endif %}",
                "",
            ),
            ("{% for letter in name or [] %}{{ letter }}{% endfor %}", ""),
        ] {
            assert_eq!(
                text(source, variables.clone()).unwrap(),
                expected,
                "{source}"
            );
        }
    }
    let named = serde_json::json!({ "name": "Ada" });
    for source in ["{{ name or 'you' }}", "{{ name | default('you', true) }}"] {
        assert_eq!(text(source, named.clone()).unwrap(), "Ada");
    }
}

/// Without its second argument the filter replaces a missing variable only, as in Jinja.
#[test]
fn the_default_of_null_takes_a_second_argument() {
    let [missing, null] = without_name();
    assert_eq!(text("{{ name | default('you') }}", missing).unwrap(), "you");
    assert!(text("{{ name | default('you') }}", null).is_err());
}
