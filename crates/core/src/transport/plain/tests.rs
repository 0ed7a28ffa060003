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
        "a &lt;b&gt; &amp;amp; &#8364; &#x1F600; &Uuml;ber&nbsp;uns &unknown; & &;",
        "a <b> &amp; € 😀 Über uns &unknown; & &;\n",
    );
    check("a&#0;b&#7;c", "a\u{fffd}bc\n");
    check("1 < 2 <3 and 4 > 3", "1 < 2 <3 and 4 > 3\n");
}

/// A table ends an open `p`, a cell the one before it, a block that few use a line, `--!>` a comment.
#[test]
fn structure_as_in_browsers() {
    check(
        "<p>Hello Ada,<table><tr><td style=\"display:none\">x<td><a href=\"https://example.com/c?t=1\">Confirm</a></table>",
        "Hello Ada,\n\nConfirm (https://example.com/c?t=1)\n",
    );
    check(
        "<center>Your code</center><center>1234</center>",
        "Your code\n1234\n",
    );
    check("<form>a</form><nav>b</nav>c", "a\nb\nc\n");
    check(
        "<span style='display: BLOCK'>a</span><span style='color:red;display:block!important'>b</span>",
        "a\nb\n",
    );
    check("a<!-- x --!>b<!-->c", "abc\n");
    check("<b>a<p>b</b>c</p>d", "a\n\nbc\n\nd\n");
    check("<svg/>a<svg><title/>x</svg>b", "ab\n");
    check("<script/>x</script>a", "a\n");
    check("a<noscript>x<b></noscript>b", "ab\n");
    check(
        "<a href='https://a.example'><div>a</div></a>b",
        "a (https://a.example)\nb\n",
    );
}

#[test]
fn hidden_elements() {
    check("<div hidden>x</div>a<p hidden=until-found>y", "a\n");
    check(
        "<div style='color: red; DISPLAY : None !important'>x</div>a",
        "a\n",
    );
    check("<div style='display:none;display:block'>a</div>", "a\n");
    check("<template>x</template><title>y</title>a", "a\n");
    check(
        "<br style='display:none'>a<td style='--display:none'>b",
        "ab\n",
    );
}

#[test]
fn characters_as_in_browsers() {
    check(
        "It&#146;s &#128;100 &copy 2026",
        "It\u{2019}s \u{20ac}100 © 2026\n",
    );
    check("می\u{200c}خواهم", "می\u{200c}خواهم\n");
    check(
        "می&zwnj;خواهم &rlm;(۱)&lrm;",
        "می\u{200c}خواهم \u{200f}(۱)\u{200e}\n",
    );
    check(
        "👨\u{200d}👩\u{200d}👧 &#x2764;&#xFE0F;",
        "👨\u{200d}👩\u{200d}👧 \u{2764}\u{fe0f}\n",
    );
    check("Donau&shy;dampf\u{feff}schiff", "Donaudampfschiff\n");
    check(
        "<a href='mailto:a%2Bb@example.com?subject=x'>us</a>",
        "us (a+b@example.com)\n",
    );
    check(
        "<a href='mailto:%ff%@example.com'>us</a>",
        "us (%ff%@example.com)\n",
    );
    check("<a href='MAILTO:%40%4'>us</a>", "us (@%4)\n");
}

#[test]
fn lists() {
    check(
        "<ol><li>a<li>b<ul><li>c</ul><li value=7>d<li>e</ol>",
        "1. a\n2. b\n- c\n7. d\n8. e\n",
    );
    check(
        "<ol start=3><li><p>a<li>b</ol><li>c",
        "3. a\n\n4. b\n\n- c\n",
    );
    check(
        "<ol start=2147483647><li>a<li>b</ol>",
        "2147483647. a\n2147483647. b\n",
    );
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

/// Twice as much takes about twice as long, for each kind of input.
#[test]
fn it_takes_time_in_proportion() {
    let many = |part: &str| part.repeat(20_000);
    let numbered = |part: &str| -> String {
        (0..20_000)
            .map(|i| part.replace('#', &i.to_string()))
            .collect()
    };
    let spaces = format!("<pre>x{}", many(" "));
    for (html, what) in [
        (many("<a href=\""), "quoted values"),
        (many("<!--"), "comments"),
        (many("<script>"), "scripts"),
        (many("&"), "ampersands"),
        (many("<a "), "broken tags"),
        ("<".repeat(1 << 20), "signs"),
        (many("</"), "ends"),
        ("<div>".repeat(100_000), "elements"),
        (many("&#"), "references"),
        (format!("<p{}>a", numbered(" a#")), "attributes"),
        (
            numbered("<p><font color=#>x"),
            "formatting that is opened again",
        ),
        (many("<a><p>x"), "links that are opened again"),
        (many("<a><div>x"), "links around blocks"),
        (many("<table>x<br>"), "text outside of cells"),
        (many("<table><tr><td><a href=http:x>"), "nested tables"),
        (many("<li><ol>"), "nested lists"),
        (many("<svg><p>"), "foreign elements"),
        (many("<select><option>x"), "options"),
        (many("<template>"), "templates"),
        (many("<b></p>"), "ends without a beginning"),
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
        let took = begin.elapsed();
        assert!(took.as_secs() < 30, "{what}: {took:?}");
    }
}

/// What is deeper than any mail loses its structure, not its text.
#[test]
fn deep_elements_and_many_of_them() {
    let deep = format!(
        "{}a{}<p>b<p>c",
        "<div>".repeat(100_000),
        "</div>".repeat(100_000)
    );
    check(&deep, "a\n\nb\n\nc\n");
    let deep = format!(
        "{}<script>x</script><style>y</style>a",
        "<div>".repeat(1_000)
    );
    check(&deep, "a\n");
    let many = format!("{}<script>x</script>a", "<i></i>".repeat(200_000));
    check(&many, "a\n");
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
