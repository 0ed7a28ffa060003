//! Templates that are too deep, or take too much time or memory.

use super::*;

#[test]
fn what_never_ends_is_ended() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    assert!(
        text(endless, some("a"))
            .unwrap_err()
            .contains("takes too much time or memory")
    );
    let deep = "{% for a in [[[1]]] recursive %}{{ loop([a]) }}{% endfor %}";
    assert!(text(deep, some("a")).unwrap_err().starts_with("body_text"));
    let long = "{% for a in range(2000) %}{{ login }}{% endfor %}";
    assert_eq!(
        text(long, some(&"a".repeat(1000))).unwrap_err(),
        "body_text: renders to more than 1048576 octets"
    );
}

/// The parser's and the compiler's recursion follow the tree: a deep one would overflow the stack, and end the server.
#[test]
fn a_tree_that_is_too_deep_is_refused() {
    for (source, why) in [
        (
            format!("{{{{ 1{} }}}}", "+1".repeat(100_000)),
            "words and signs",
        ),
        (
            format!("{{{{ a{} }}}}", ".a".repeat(100_000)),
            "words and signs",
        ),
        (
            format!("{{{{ a{} }}}}", "[0]".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ a{} }}}}", "|abs".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ a{} }}}}", "()".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ {}a }}}}", "not ".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ {}a }}}}", "-".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ {}a }}}}", "(".repeat(50_000)),
            "words and signs",
        ),
        (
            format!("{{{{ {}a }}}}", "[".repeat(50_000)),
            "words and signs",
        ),
        ("{% if a %}".repeat(20_000), "recursion"),
        (
            format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(10_000)),
            "elif",
        ),
    ] {
        let refusal = refused(Part::Text, &source);
        assert!(refusal.contains(why), "{refusal}");
    }
    // What is just not too deep is no trouble, on a stack as small as a thread's.
    for (source, expected) in [
        (format!("{{{{ 1{} }}}}", "+1".repeat(120)), "121"),
        (format!("{{{{ {}false }}}}", "not ".repeat(240)), "False"),
        (format!("{{{{ {}1 }}}}", "-".repeat(240)), "1"),
        (format!("{{{{ 'a'{} }}}}", "|upper".repeat(120)), "A"),
        (
            format!("{{{{ [{}][-1] }}}}", "'a', ".repeat(5_000) + "'b'"),
            "b",
        ),
    ] {
        assert_eq!(text(&source, some("a")).unwrap(), expected, "{source}");
    }
    let elifs = format!(
        "{{% if false %}}{}{{% else %}}x{{% endif %}}",
        "{% elif false %}".repeat(100)
    );
    assert_eq!(text(&elifs, some("a")).unwrap(), "x");
}
