//! The page of `mailroom serve` in a browser, as people see and use it.

mod book;
mod day;
mod hostile;
mod live;
mod pictures;
mod proxy;
mod scene;
mod sound;

use crate::browser::Seen;

/// What the steps read, in order.
fn texts(seen: &Seen) -> Vec<String> {
    let values = seen.list("steps").iter().map(|step| &step["value"]);
    let values = values.filter(|value| !value.is_null());
    values
        .map(|value| match value.as_array() {
            Some(texts) => texts
                .iter()
                .filter_map(|text| text.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
            None => value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        })
        .collect()
}
