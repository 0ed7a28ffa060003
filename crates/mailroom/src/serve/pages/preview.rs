//! What a message or a template says.
//!
//! HTML is shown in a frame that may do nothing, by a response that may load nothing, on a page whose frames go nowhere: each
//! of the three keeps in what another lets out. Links are listed as text. Of token mail only a sample is shown.

use std::collections::BTreeMap;

use hyper::header::HeaderMap;
use mailroom_core::transport::plain::links;
use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Shown, refusal};
use crate::serve::connection::{Access, Failure};
use crate::serve::form::{Form, query};
use crate::serve::layout::{View, shown};
use crate::serve::response::mail;

/// Where HTML shows an attached image (RFC 2392).
const CID: &str = "cid:";
/// Maximum size of the images that are shown in a mail, each as often as it is shown.
const IMAGES_MAX: usize = 4 * 1024 * 1024;

/// What a mail says.
#[derive(Default)]
pub struct Contents {
    pub subject: Option<String>,
    pub body_text: Option<String>,
    pub body_html: Option<String>,
    pub is_cut: bool,
}

/// What a template makes of data, or what is wrong with it.
///
/// # Errors
/// The database cannot be used.
pub async fn rendered(
    view: &View<'_>,
    kind: &str,
    data: Option<&str>,
    locale: Option<&str>,
) -> Result<Result<Contents, super::Notice>, Failure> {
    let statement = include_str!("../../../sql/page/template_preview.sql");
    let parameters = [
        (&kind as _, Type::TEXT),
        (&data as _, Type::TEXT),
        (&locale as _, Type::TEXT),
    ];
    let read = view.session.run(Access::Read, async |statements| {
        let row = statements.one(statement, &parameters).await?;
        Ok(Contents {
            subject: row.maybe("subject")?,
            body_text: row.maybe("body_text")?,
            body_html: row.maybe("body_html")?,
            is_cut: row.flag("is_cut")?,
        })
    });
    match read.await {
        Ok((contents, _)) => Ok(Ok(contents)),
        Err(Failure::Statement(statement)) if statement.sqlstate != "42501" => {
            Ok(Err(refusal(&statement)))
        }
        Err(failure) => Err(failure),
    }
}

/// A message as far as it was found, and how.
struct Found {
    contents: Contents,
    data: Option<String>,
    headers: Option<String>,
    from: Option<String>,
    is_rendered: bool,
    fault: Option<super::Notice>,
}

async fn find(
    view: &View<'_>,
    id: i64,
    kind: &str,
    has_link: bool,
) -> Result<Option<Found>, Failure> {
    let statement = include_str!("../../../sql/page/message_contents.sql");
    let read = view.session.run(Access::Read, async |statements| {
        statements.maybe(statement, &[(&id, Type::INT8)]).await
    });
    let (Some(row), _) = read.await? else {
        return Ok(None);
    };
    let mut found = Found {
        contents: Contents {
            subject: None,
            body_text: row.maybe("body_text")?,
            body_html: row.maybe("body_html")?,
            is_cut: row.flag("is_cut")?,
        },
        data: row.maybe("data")?.filter(|data| data != "{}"),
        headers: row.maybe("headers")?.filter(|headers| headers != "{}"),
        from: row.maybe("from_address")?,
        is_rendered: row.flag("body_from_template")?,
        fault: None,
    };
    if found.is_rendered {
        // The link of token mail is a sample.
        let data = row.maybe("template_data")?.filter(|_| !has_link);
        match rendered(view, kind, data.as_deref(), None).await? {
            Ok(contents) => found.contents = contents,
            Err(fault) => found.fault = Some(fault),
        }
    }
    Ok(Some(found))
}

/// The contents of a message, for its page.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn message(
    view: &View<'_>,
    id: i64,
    kind: &str,
    has_link: bool,
    form: &Form,
) -> Result<Markup, Failure> {
    let Some(found) = find(view, id, kind, has_link).await? else {
        return Ok(html! {});
    };
    let note = match (found.is_rendered, has_link) {
        (true, true) => Some("With sample values: links and codes are never shown here."),
        (true, false) => {
            Some("Rendered now from the template in force; what was sent is not kept.")
        }
        (false, _) => None,
    };
    let extra = [
        ("data", "Data", &found.data),
        ("headers", "Headers", &found.headers),
    ];
    let frame = view.path(&format!("messages/{id}/html"));
    Ok(panel(
        view,
        form,
        &found.contents,
        &Around {
            page: &format!("messages/{id}"),
            frame: &frame,
            kept: &[],
            extra: &extra,
            from: found.from.as_deref(),
            note,
            fault: found.fault.as_ref(),
        },
    ))
}

/// What is around the contents.
pub struct Around<'a> {
    /// The path of the page within the database.
    pub page: &'a str,
    /// The path of the frame.
    pub frame: &'a str,
    /// Values of the query that stay.
    pub kept: &'a [(&'a str, &'a str)],
    /// Further tabs: their names, their titles, and what they show.
    pub extra: &'a [(&'a str, &'a str, &'a Option<String>)],
    pub from: Option<&'a str>,
    pub note: Option<&'a str>,
    pub fault: Option<&'a super::Notice>,
}

/// Contents with tabs for their parts, widths and colours.
pub fn panel(view: &View<'_>, form: &Form, contents: &Contents, around: &Around<'_>) -> Markup {
    let mut tabs: Vec<(&str, &str)> = Vec::new();
    if contents.body_html.is_some() {
        tabs.push(("html", "HTML"));
    }
    if contents.body_text.is_some() {
        tabs.push(("text", "Text"));
    }
    for (name, title, part) in around.extra {
        if part.is_some() {
            tabs.push((name, title));
        }
    }
    let asked = form.get("view").unwrap_or_default();
    let first = tabs.first().map_or("", |(name, _)| *name);
    let is_there = tabs.iter().any(|(name, _)| *name == asked);
    let chosen = if is_there { asked } else { first };
    let is_narrow = form.get("width") == Some("375");
    let is_dark = form.get("colours") == Some("dark");
    let link = |part: &str, width: &str, colours: &str| {
        let mut pairs = around.kept.to_vec();
        pairs.extend([("view", part), ("width", width), ("colours", colours)]);
        view.path(&format!("{}{}", around.page, query(&pairs)))
    };
    let width = if is_narrow { "375" } else { "700" };
    let colours = if is_dark { "dark" } else { "light" };
    let current = |is: bool| is.then_some("true");
    html! {
        section class="panel" aria-label="Contents" {
            @if !tabs.is_empty() || contents.subject.is_some() { header {
                @if let Some(subject) = &contents.subject { h2 class="any" { (subject) } }
                nav class="tabs" aria-label="Contents" {
                    @for (name, title) in &tabs {
                        a href=(link(name, width, colours)) aria-current=[current(*name == chosen)] { (title) }
                    }
                }
                @if chosen == "html" {
                    nav class="tabs" aria-label="Width" {
                        a href=(link(chosen, "375", colours)) aria-current=[current(is_narrow)] { "375" }
                        a href=(link(chosen, "700", colours)) aria-current=[current(!is_narrow)] { "700" }
                    }
                    nav class="tabs" aria-label="Colours" {
                        a href=(link(chosen, width, "light")) aria-current=[current(!is_dark)] { "Light" }
                        a href=(link(chosen, width, "dark")) aria-current=[current(is_dark)] { "Dark" }
                    }
                }
            } }
            @if let Some(fault) = around.fault { div class="body" { (shown(fault)) } }
            @if let Some(from) = around.from { div class="body" { dl class="facts" { dt { "From" } dd class="any" { (from) } } } }
            @match chosen {
                "html" => {
                    div class={ "frame" @if is_narrow { " w375" } @if is_dark { " dark" } } {
                        iframe sandbox="" referrerpolicy="no-referrer" src=(around.frame) title="The mail as HTML" {}
                    }
                    (listed(contents.body_html.as_deref().unwrap_or_default()))
                },
                "text" => { (text(contents.body_text.as_deref().unwrap_or_default())) },
                other => {
                    @for (name, _, part) in around.extra {
                        @if let (true, Some(part)) = (*name == other, part) { (text(part)) }
                    }
                },
            }
            @if tabs.is_empty() && around.fault.is_none() { div class="empty" { p { strong { "No contents" } } } }
            @if contents.is_cut { footer { p { "Cut after 1 MB." } } }
            @if let Some(note) = around.note { footer { p { (note) } } }
        }
    }
}

fn text(text: &str) -> Markup {
    html! { div class="body" { pre class="wrap" tabindex="0" { (text) } } }
}

/// The links of HTML, as text.
fn listed(source: &str) -> Markup {
    let all = links(source);
    html! {
        @if !all.is_empty() {
            div class="body" {
                h2 { "Links" }
                ul class="links" {
                    @for (at, link) in all.iter().enumerate() {
                        li {
                            code { (link) }
                            button type="button" class="plain small js" data-copy=(link) aria-label={ "Copy link " (at + 1) } { "Copy" }
                        }
                    }
                }
            }
        }
    }
}

/// The HTML of a message.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn message_html(view: &View<'_>, id: i64, headers: &HeaderMap) -> Result<Shown, Failure> {
    let statement = include_str!("../../../sql/page/message_monitor.sql");
    let read = view.session.run(Access::Read, async |statements| {
        let row = statements.maybe(statement, &[(&id, Type::INT8)]).await?;
        row.map(|row| Ok((row.text("kind")?, row.flag("has_link")?)))
            .transpose()
    });
    let (Some((kind, has_link)), _) = read.await? else {
        return Ok(Shown::Answer(mail(headers, String::new())));
    };
    let found = find(view, id, &kind, has_link).await?;
    let source = found
        .and_then(|found| found.contents.body_html)
        .unwrap_or_default();
    let images = match source.contains(CID) {
        true => images(view, id).await?,
        false => BTreeMap::new(),
    };
    Ok(Shown::Answer(mail(headers, with_images(&source, &images))))
}

/// The images of a message by their content ids, as URLs that hold them.
async fn images(view: &View<'_>, id: i64) -> Result<BTreeMap<String, String>, Failure> {
    let statement = include_str!("../../../sql/page/attachments_contents.sql");
    let read = view.session.run(Access::Read, async |statements| {
        let mut images = BTreeMap::new();
        for row in statements.all(statement, &[(&id, Type::INT8)]).await? {
            let kind = row.text("content_type")?;
            let is_plain = kind
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"/+-.".contains(&byte));
            if let (true, Some(content)) = (is_plain, row.maybe("content")?) {
                images.insert(
                    row.text("content_id")?,
                    format!("data:{kind};base64,{content}"),
                );
            }
        }
        Ok(images)
    });
    Ok(read.await?.0)
}

/// Puts images in the place of their ids, as long as they have [`IMAGES_MAX`] bytes together.
fn with_images(source: &str, images: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(source.len());
    let mut room = IMAGES_MAX;
    let mut rest = source;
    while let Some(at) = rest.find(CID) {
        let (before, found) = rest.split_at(at);
        result.push_str(before);
        let name = found.strip_prefix(CID).unwrap_or(found);
        // The longest id, since another may be its beginning.
        let fits = images
            .iter()
            .filter(|(id, _)| name.starts_with(id.as_str()));
        let fit = fits.max_by_key(|(id, _)| id.len());
        rest = match fit.filter(|(_, image)| image.len() <= room) {
            Some((id, image)) => {
                result.push_str(image);
                room -= image.len();
                name.strip_prefix(id.as_str()).unwrap_or(name)
            }
            None => {
                result.push_str(CID);
                name
            }
        };
    }
    result.push_str(rest);
    result
}

/// The HTML of a template.
///
/// # Errors
/// The database cannot be used, or refuses a statement.
pub async fn template_html(
    view: &View<'_>,
    kind: &str,
    form: &Form,
    headers: &HeaderMap,
) -> Result<Shown, Failure> {
    let contents = rendered(view, kind, form.get("data"), form.get("locale")).await?;
    let source = contents.ok().and_then(|contents| contents.body_html);
    Ok(Shown::Answer(mail(headers, source.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_take_the_place_of_their_ids() {
        let images = BTreeMap::from([
            ("a".to_owned(), "data:1".to_owned()),
            ("a@b".to_owned(), "data:2".to_owned()),
        ]);
        let source = "<img src='cid:a@b'><img src='cid:a'><img src='cid:c'>";
        let expected = "<img src='data:2'><img src='data:1'><img src='cid:c'>";
        assert_eq!(with_images(source, &images), expected);
    }

    #[test]
    fn an_image_that_is_shown_often_does_not_fill_the_memory() {
        let images = BTreeMap::from([("a".to_owned(), "x".repeat(1_000_000))]);
        let source = "<img src='cid:a'>".repeat(3_000);
        let shown = with_images(&source, &images);
        assert!(shown.len() < source.len() + IMAGES_MAX);
        assert!(shown.ends_with("<img src='cid:a'>"));
    }
}
