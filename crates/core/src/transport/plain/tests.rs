use super::from_html;
use proptest::prelude::*;

fn check(html: &str, text: &str) {
    assert_eq!(from_html(html), text, "{html}");
}

#[test]
fn a_mail_as_templates_write_it() {
    check(
        "<!doctype html><html><head><title>No</title><style>p > a { color: red }</style></head>\n\
         <body><div style=\"display: none\">Preview<div>more</div></div>\n\
         <h1>Welcome, Ada</h1>\n<p>Please   confirm\nyour address:</p>\n\
         <p><a href=\"https://example.com/a?x=1&amp;y=2\">Confirm</a></p>\n\
         <ul><li>One</li><li>Two</li></ul><hr>\
         <p>Yours,<br>Example &copy; 2026</p><script>if (a < b) { p() }</script></body></html>",
        "Welcome, Ada\n\nPlease confirm your address:\n\nConfirm (https://example.com/a?x=1&y=2)\n\n\
         - One\n- Two\n\n---\n\nYours,\nExample © 2026\n",
    );
}

/// HTML lets these be left out, and tools that make a page smaller do so.
#[test]
fn end_tags_that_are_left_out() {
    check("<head><title>No</title><meta charset=utf-8><body>a", "a\n");
    check("<html><head><link href=x><style>p {}</style><p>a", "a\n");
    let hidden = "<p style=\"display:none\">Preview";
    check(&format!("{hidden}<p>a<p>b"), "a\n\nb\n");
    check(&format!("{hidden}<div>a</div>"), "a\n");
    check(&format!("<div>{hidden} <b>more</b></div>a"), "a\n");
    check(&format!("<table><tr><td>{hidden}</td><td>a"), "a\n");
    check(&format!("{hidden}{hidden}</p>a"), "a\n");
    check(&format!("{hidden} <b>more</b></p>a"), "a\n");
}

#[test]
fn links() {
    check(
        "<a href='https://a.example/'>https://a.example/</a>",
        "https://a.example/\n",
    );
    check(
        "<a href=https://a.example/><img src=x></a>",
        "https://a.example/\n",
    );
    check(
        "<a href=\"mailto:a@b.example?subject=x\">us</a>",
        "us (a@b.example)\n",
    );
    check("<a href=\"#top\">up</a> <a>none</a>", "up none\n");
    check("<a href=\"javascript:x()\">no</a>", "no\n");
    check(
        "<a href=\"https://a.example\">one <a href=\"https://b.example\">two</a></a> three",
        "one (https://a.example) two (https://b.example) three\n",
    );
    check(
        "<a title=\"a > b\" href=\"https://a.example\">go</a>!",
        "go (https://a.example)!\n",
    );
}

#[test]
fn characters() {
    check(
        "a &lt;b&gt; &amp;amp; &#8364; &#x1F600; &Uuml;ber&nbsp;uns &nothing; & &;",
        "a <b> &amp; € 😀 Über uns &nothing; & &;\n",
    );
    check("a&#0;b&#7;c", "a\u{fffd}bc\n");
    check("1 < 2 <3 and 4 > 3", "1 < 2 <3 and 4 > 3\n");
}

#[test]
fn lines_and_cells() {
    check("<pre>a\n  b\n\n\n\nc</pre>d", "a\n  b\n\nc\n\nd\n");
    check(
        "<table><tr><td>Sum</td><td>3 €</td></tr><tr><td>Tax</td><td>1 €</td></tr></table>",
        "Sum 3 €\nTax 1 €\n",
    );
    check("a<br/><br/><br/>b", "a\n\nb\n");
    check(
        "<img alt='Our logo' src=x> <b>bold</b><i>er</i>",
        "Our logo bolder\n",
    );
}

#[test]
fn what_is_broken() {
    check("", "");
    check("<p></p><img src=x>", "");
    check("a <!-- never closed <b>", "a\n");
    check("a <a href=\"b", "a\n");
    check("a <style> b", "a\n");
    check("</p></a></li>a", "a\n");
    check("a <![CDATA[b]]> c", "a c\n");
}

#[test]
fn it_takes_time_in_proportion() {
    let many = |part: &str| part.repeat(200_000);
    let spaces = format!("<pre>x{}", many(" "));
    for (html, what) in [
        (many("<a href=\""), "quoted values"),
        (many("<!--"), "comments"),
        (many("<script>"), "scripts"),
        (many("&"), "ampersands"),
        (many("<a "), "broken tags"),
        (many("<"), "signs"),
        (many("</"), "ends"),
        (many("<div>"), "elements"),
        (many("&#"), "references"),
        (spaces.clone() + &many("<a>"), "links after spaces"),
        (
            spaces.clone() + &many("<a href=mailto:></a>"),
            "links without text after spaces",
        ),
        (
            many("<a href=http:>") + &spaces + "x" + &many("</a>"),
            "nested links around spaces",
        ),
        (spaces.clone() + &many("<br> "), "breaks after spaces"),
        (many("<p style='display:none'>"), "hidden elements"),
        (many("<pre> \n"), "lines of spaces"),
    ] {
        let begin = std::time::Instant::now();
        let _ = from_html(&html);
        assert!(begin.elapsed().as_secs() < 5, "{what}");
    }
}

proptest! {
    #[test]
    fn any_html_gives_text(html in "(<|>|&|</|<!--|-->|a|p|style|\"|'|=|;|#|\n|é|<a href=\"http://x\">|</a>|.){0,40}") {
        let text = from_html(&html);
        prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        prop_assert!(text.is_empty() || text.ends_with('\n'));
    }

    #[test]
    fn text_without_markup_stays(text in "[a-zA-Z0-9.,äöü]{1,20}( [a-zA-Z0-9.,äöü]{1,20}){0,5}") {
        prop_assert_eq!(from_html(&text), format!("{}\n", text));
    }
}
