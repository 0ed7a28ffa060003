//! Tests of the engine, without a server.

use super::*;
use minijinja::value::Serde;
use proptest::prelude::*;

mod limits;
mod missing;
mod shipped;

fn render(part: Part, source: &str, variables: serde_json::Value) -> Result<String, String> {
    Engine::new()
        .render(part, source, &Value::from(Serde(variables)))
        .map_err(|problem| problem.to_string())
}

fn text(source: &str, variables: serde_json::Value) -> Result<String, String> {
    render(Part::Text, source, variables)
}

fn refused(part: Part, source: &str) -> String {
    let problem = Engine::new().check(part, source).unwrap_err();
    problem.to_string()
}

fn some(login: &str) -> serde_json::Value {
    serde_json::json!({ "login": login })
}

#[test]
fn values_are_escaped_in_html_and_nowhere_else() {
    let hostile = r#"<script>"x" & 'y'</script>"#;
    assert_eq!(
        render(Part::Html, r#"<a title="{{ login }}">"#, some(hostile)).unwrap(),
        r#"<a title="&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/script&gt;">"#
    );
    for part in [Part::Text, Part::Subject] {
        assert_eq!(render(part, "{{ login }}", some(hostile)).unwrap(), hostile);
    }
    // In containers and through filters too, unless the template says that it is safe.
    let nested = serde_json::json!({ "l": ["<b>"], "o": {"<k>": "<v>"} });
    assert_eq!(
        render(
            Part::Html,
            "{{ l }}{{ o }}{{ l | join(', ') }}{{ l[0] | upper }}",
            nested
        )
        .unwrap(),
        "[&#39;&lt;b&gt;&#39;]{&#39;&lt;k&gt;&#39;: &#39;&lt;v&gt;&#39;}&lt;b&gt;&lt;B&gt;"
    );
    assert_eq!(
        render(Part::Html, "{{ login | safe }}", some("<b>")).unwrap(),
        "<b>"
    );
    assert_eq!(
        render(Part::Html, "{{ login | escape }}", some("<b>")).unwrap(),
        "&lt;b&gt;"
    );
}

#[test]
fn a_value_is_never_taken_for_source() {
    for login in [
        "{{ 7 * 7 }}",
        "{% if true %}49{% endif %}",
        "{# gone #}",
        "{{ token }}",
    ] {
        let variables = serde_json::json!({ "login": login, "token": "secret" });
        for part in [Part::Subject, Part::Text, Part::Html] {
            assert_eq!(
                render(part, "{{ login }}", variables.clone()).unwrap(),
                login
            );
        }
    }
}

#[test]
fn a_template_reaches_nothing_but_its_variables() {
    for (source, why) in [
        ("{% include 'a' %}", "include"),
        ("{% extends 'a' %}", "extends"),
        ("{% import 'a' as b %}", "import"),
        ("{% macro a() %}{% endmacro %}", "macro"),
    ] {
        assert!(refused(Part::Text, source).contains(why), "{source}");
    }
    for name in ["debug", "namespace", "dict", "open", "cycler", "lipsum"] {
        assert_eq!(
            refused(Part::Text, &format!("\n {{{{ {name}() }}}}")),
            format!("body_text, line 2, column 5: there is no function \"{name}\"")
        );
    }
    assert!(text("{{ self }}", some("a")).is_err());
    assert!(text("{{ login.__class__ }}", some("a")).is_err());
    assert!(text("{{ environ }}", some("a")).is_err());
}

#[test]
fn a_broken_part_is_refused_with_its_place() {
    assert_eq!(
        refused(Part::Subject, "Hello {{ login"),
        "subject, line 1, column 10: unexpected end of input, expected end of variable block"
    );
    assert_eq!(
        refused(Part::Html, "<p>\n{% if login %}"),
        "body_html, line 2, column 13: unexpected end of input, expected end of block"
    );
    // In a branch that no message may ever take.
    assert_eq!(
        refused(
            Part::Text,
            "{% if false %}\n  {{ login | uper }}{% endif %}"
        ),
        "body_text, line 2, column 14: there is no filter \"uper\""
    );
    assert_eq!(
        refused(Part::Text, "{{ 1 is nice }}"),
        "body_text, line 1, column 9: there is no test \"nice\""
    );
    assert_eq!(
        refused(Part::Text, &"x".repeat(SOURCE_MAX + 1)),
        "body_text: has 262145 octets, at most 262144 are allowed"
    );
    let engine = Engine::new();
    for good in [
        "",
        "{{ login | default('you') | upper | replace('A', 'B') | urlencode }}",
        "{% for i in range(3) recursive %}{{ loop(i) }}{% endfor %}",
        "{% if a is defined and a is not none %}{% set b = a %}{{ b }}{% endif %}",
        "{{ 'x' if a else 'y' }}",
    ] {
        assert_eq!(engine.check(Part::Text, good), Ok(()), "{good}");
    }
}

#[test]
fn a_failure_names_its_place_and_no_value() {
    let secret =
        serde_json::json!({ "login": "s3cret", "list": ["s3cret"], "number": 1, "nothing": null });
    for (source, why) in [
        (
            "Hi\n  {{ logn }}",
            "body_text, line 2, column 6: undefined or null in \"logn\"",
        ),
        (
            "{{ nothing }}",
            "body_text, line 1, column 4: undefined or null in \"nothing\"",
        ),
        (
            "{{ login.name }}",
            "body_text, line 1, column 4: undefined or null in \"login.name\"",
        ),
        (
            "{{ login + 1 }}",
            "body_text, line 1, column 4: invalid operation in \"login + 1\"",
        ),
        (
            "{{ login | int }}",
            "body_text, line 1, column 12: invalid operation in \"int\"",
        ),
        (
            "{{ login | abs }}",
            "body_text, line 1, column 12: invalid operation in \"abs\"",
        ),
        ("{{ login() }}", ""),
        ("{{ login.upper() }}", ""),
        ("{% for a, b in list %}{% endfor %}", ""),
        ("{{ list | join(1, 2, 3) }}", ""),
        ("{{ list | map(login) | list }}", ""),
        ("{{ list | sort(attribute=login) | first | int }}", ""),
        ("{{ [login] | sum }}", ""),
        ("{{ login * login }}", ""),
        ("{{ range(login) }}", ""),
    ] {
        let problem = text(source, secret.clone()).unwrap_err();
        assert!(!problem.contains("s3cret"), "{problem}");
        assert!(why.is_empty() || problem == why, "{problem}");
    }
}

#[test]
fn what_mail_needs_is_left() {
    let order = serde_json::json!({
        "customer": {"name": "Ada", "tags": ["new", "vip"]},
        "items": (0..1000).map(|n| serde_json::json!({
            "name": format!("Thing {n}"), "price": 1.5, "count": n % 3, "sort": 1000 - n,
        })).collect::<Vec<_>>(),
    });
    for (source, expected) in [
        (
            "{{ customer.name ~ '!' }} {{ customer['name'] | upper }}",
            "Ada! ADA",
        ),
        (
            "{{ 2 * 3.5 + 1 - 4 // 3 }} {{ 2 ** 10 }} {{ 7 % 4 }}",
            "7.0 1024 3",
        ),
        (
            "{{ customer.tags | join(', ') }} {{ 'vip' in customer.tags }}",
            "new, vip True",
        ),
        (
            "{{ items | length }} {{ items | map(attribute='price') | sum }}",
            "1000 1500.0",
        ),
        (
            "{{ (items | sort(attribute='sort') | first).name }}",
            "Thing 999",
        ),
        (
            "{{ (items | selectattr('count', 'eq', 2) | list)[:2] | map(attribute='name') | join('+') }}",
            "Thing 2+Thing 5",
        ),
        (
            "{% for i in items[:3] %}{{ loop.cycle('a', 'b') }}{{ i.name | replace('Thing', 'T') }}{{ ',' if not loop.last }}{% endfor %}",
            "aT 0,bT 1,aT 2",
        ),
        (
            "{% set greeting %}Dear {{ customer.name }}{% endset %}{{ greeting }}",
            "Dear Ada",
        ),
        (
            "{% filter upper %}a{{ customer.name }}{% endfilter %}",
            "AADA",
        ),
        (
            "{% for key, value in customer | items %}{{ key }} {% endfor %}",
            "name tags ",
        ),
        (
            "{% for a in [1, [2, [3]]] recursive %}{{ loop(a) if a is sequence else a }}{% endfor %}",
            "123",
        ),
        (
            "{% with a = 'x', b = [1, 2] %}{{ a }}{{ b[1] }}{{ b | last }}{% endwith %}",
            "x22",
        ),
        (
            "{% for i in items if i.count == 2 %}{{ loop.index if loop.last }}{% endfor %}",
            "333",
        ),
    ] {
        assert_eq!(text(source, order.clone()).unwrap(), expected, "{source}");
    }
    // A table of a thousand rows and five columns, with its HTML.
    let table = "{% for i in items %}<tr><td>{{ loop.index }}</td><td>{{ i.name }}</td><td>{{ i.count }}</td>\
                 <td>{{ i.price | round(2) }}</td><td>{{ i.price * i.count }}</td></tr>{% else %}none{% endfor %}";
    assert!(
        render(Part::Html, table, order)
            .unwrap()
            .contains("<td>Thing 999</td>")
    );
}

#[test]
fn a_subject_is_one_line() {
    for break_out in [
        "a\r\nBcc: b@example.com",
        "a\nb",
        "a\u{85}b",
        "a\tb",
        "a\u{7f}",
    ] {
        assert_eq!(
            render(Part::Subject, "{{ login }}", some(break_out)).unwrap_err(),
            "subject: renders to more than one line, or to a control character"
        );
    }
    assert_eq!(
        render(Part::Subject, "{{ login }}", some(" ")).unwrap_err(),
        "subject: renders to nothing"
    );
    assert_eq!(
        render(Part::Subject, "{{ login }}", some(&"ü".repeat(500))).unwrap_err(),
        "subject: renders to more than 998 octets"
    );
    assert!(render(Part::Subject, "{{ login }}", some(&"a".repeat(998))).is_ok());
}

#[test]
fn a_compiled_part_is_found_by_its_source_and_its_kind() {
    let mut engine = Engine::new();
    let variables = Value::from(Serde(some("<b>")));
    for _ in 0..2 {
        assert_eq!(
            engine
                .render(Part::Text, "{{ login }}", &variables)
                .unwrap(),
            "<b>"
        );
        assert_eq!(
            engine
                .render(Part::Html, "{{ login }}", &variables)
                .unwrap(),
            "&lt;b&gt;"
        );
        assert_eq!(
            engine
                .render(Part::Subject, "{{ login }}", &variables)
                .unwrap(),
            "<b>"
        );
    }
    assert_eq!(engine.compiled.len(), 1);
    // One more does not fit, and is compiled at each use.
    for n in 0..=KEPT_MAX / SOURCE_MAX {
        let source = format!("{{{{ login }}}}{n}{}", " ".repeat(SOURCE_MAX - 20));
        for _ in 0..2 {
            let rendered = engine.render(Part::Text, &source, &variables).unwrap();
            assert_eq!(rendered.trim_end(), format!("<b>{n}"));
        }
    }
    assert!(engine.kept <= KEPT_MAX);
    let each = octets(&compile(Part::Text, &"a".repeat(SOURCE_MAX - 20), &engine.names).unwrap());
    assert!((KEPT_MAX / each).abs_diff(engine.compiled.len()) <= 1);
}

#[test]
fn many_short_parts_are_not_all_kept() {
    let mut engine = Engine::new();
    // The compiled form of each is a thousand times as long.
    for n in 0..2 * KEPT_MAX / COMPILED_MIN {
        let source = format!("{{{{ n }}}}{n}");
        let rendered = engine.render(
            Part::Text,
            &source,
            &Value::from(Serde(serde_json::json!({"n": "x"}))),
        );
        assert_eq!(rendered.unwrap(), format!("x{n}"));
    }
    assert!(engine.compiled.len() < KEPT_MAX / COMPILED_MIN);
    assert!(engine.kept <= KEPT_MAX);
}

#[test]
fn what_a_compiled_part_takes_grows_with_its_instructions() {
    let engine = Engine::new();
    let taken = |source: &str| octets(&compile(Part::Text, source, &engine.names).unwrap());
    assert!(
        taken(&"{{ n }}".repeat(1000)) > taken("{{ n }}") + 2 * 999 * size_of::<Instruction<'_>>()
    );
}

proptest! {
    #[test]
    fn no_value_changes_the_html_around_it(login in "[^\x00]{0,40}") {
        let page = render(Part::Html, "<p title=\"{{ login }}\">", some(&login)).unwrap();
        let inner = page.strip_prefix("<p title=\"").unwrap().strip_suffix("\">").unwrap();
        prop_assert!(!inner.contains(['<', '>', '"', '\'']));
    }

    #[test]
    fn no_source_panics(source in "(\\{\\{|\\}\\}|\\{%|%\\}|for|in|if|set|login|\\||[ a-z0-9'\"().,+*~-]|\n){0,30}") {
        let mut engine = Engine::new();
        if engine.check(Part::Html, &source).is_ok() {
            let _ = engine.render(Part::Html, &source, &Value::from(Serde(some("a"))));
        }
    }
}
