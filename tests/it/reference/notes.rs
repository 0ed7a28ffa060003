//! The notes in docs/reference/notes/, and tables of Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::book::read;

/// A text for a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A name or an expression as code in a cell; an empty text stays empty.
pub(super) fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{}`", cell(text))
    }
}

/// The parts of the notes of a page: the text before the first heading, and each heading with its text.
pub(super) struct Notes {
    pub(super) introduction: String,
    /// The level, the title and the text.
    pub(super) sections: Vec<(usize, String, String)>,
}

pub(super) fn notes(page: &str) -> Notes {
    let mut notes = Notes {
        introduction: String::new(),
        sections: Vec::new(),
    };
    let mut is_code = false;
    for line in read(&format!("docs/reference/notes/{page}.md")).lines() {
        is_code ^= line.starts_with("```");
        if !is_code && let Some((marks, title)) = line.split_once("# ") {
            notes
                .sections
                .push((marks.len() + 1, title.to_owned(), String::new()));
            continue;
        }
        let text = match notes.sections.last_mut() {
            Some((_, _, text)) => text,
            None => &mut notes.introduction,
        };
        text.push_str(line);
        text.push('\n');
    }
    notes
}

impl Notes {
    /// The names with notes, which are headings of the third level.
    fn names(&self) -> BTreeSet<&str> {
        self.sections
            .iter()
            .filter(|(level, _, _)| *level == 3)
            .map(|(_, name, _)| name.as_str())
            .collect()
    }

    /// The page: under each name, what the catalog says of it, then its note.
    pub(super) fn page(&self, title: &str, said: &BTreeMap<String, String>) -> String {
        let missing: Vec<_> = said
            .keys()
            .filter(|name| !self.names().contains(name.as_str()))
            .collect();
        assert!(
            missing.is_empty(),
            "{title}: there are no notes on {missing:?}"
        );
        let mut page = head(title, self.introduction.trim());
        for (level, name, note) in &self.sections {
            let _ = write!(page, "\n{} {name}\n", "#".repeat(*level));
            if *level == 3 {
                let said = said
                    .get(name)
                    .unwrap_or_else(|| panic!("{title}: there is no {name}"));
                let _ = write!(page, "\n{said}");
            }
            if !note.trim().is_empty() {
                let _ = write!(page, "\n{}\n", note.trim());
            }
        }
        page
    }
}

/// The beginning of a generated page.
pub(super) fn head(title: &str, introduction: &str) -> String {
    format!(
        "<!-- Generated from the catalog and docs/reference/notes/ by `make accept T=reference`. -->\n\n# {title}\n\n{introduction}\n"
    )
}
/// The rows of the tables in a text, as cells.
pub(super) fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|--"))
        .map(|line| {
            let line = line.trim_matches('|').replace("\\|", "\u{1}");
            line.split('|')
                .map(|cell| cell.trim().replace('\u{1}', "|"))
                .collect()
        })
        .collect()
}
