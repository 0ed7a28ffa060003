//! Where this session continues to search for mail of a paused transport that another transport may deliver.
//!
//! Any number of mails may have to stay with their transport, and one call examines a limited number of rows. The next
//! call continues after them; after the last row it starts again at the first. The state is local to this process;
//! losing it costs one call that examines the same rows again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pgrx::prelude::*;

/// Maximum number of cursors.
const CURSORS_LIMIT: usize = 64;

/// The priority of a row, its `send_at` in microseconds, and its id.
type Row = (i16, i64, i64);

thread_local! {
    static CURSORS: RefCell<BTreeMap<Box<[u8]>, Row>> = const { RefCell::new(BTreeMap::new()) };
}

/// Sets the cursor of this name, or removes it if `row` is `None`. If there are too many, all others are removed and start
/// at the first row again. The name is that of the paused transport and that of the other one: which rows a search passes
/// by depends on both.
fn note(cursors: &mut BTreeMap<Box<[u8]>, Row>, name: &[u8], row: Option<Row>) {
    let Some(row) = row else {
        cursors.remove(name);
        return;
    };
    if cursors.len() >= CURSORS_LIMIT && !cursors.contains_key(name) {
        cursors.clear();
    }
    cursors.insert(name.into(), row);
}

#[pg_extern(sql = false)]
fn _fallback_cursor(
    transports: &[u8],
) -> TableIterator<'static, (name!(priority, i16), name!(send_at, i64), name!(id, i64))> {
    let row = CURSORS.with_borrow(|cursors| cursors.get(transports).copied());
    TableIterator::new(row)
}

#[pg_extern(sql = false)]
fn _fallback_note(
    transports: Option<&[u8]>,
    priority: Option<i16>,
    send_at: Option<i64>,
    id: Option<i64>,
) {
    let Some(transports) = transports else { return };
    let row = priority.zip(send_at).zip(id);
    let row = row.map(|((priority, send_at), id)| (priority, send_at, id));
    CURSORS.with_borrow_mut(|cursors| note(cursors, transports, row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_kept_by_name_and_bounded() {
        let mut cursors = BTreeMap::new();
        note(&mut cursors, b"one", Some((0, 1, 2)));
        note(&mut cursors, b"two", Some((1, 1, 2)));
        note(&mut cursors, b"one", None);
        assert_eq!(cursors.get(&b"one"[..]), None);
        assert_eq!(cursors.get(&b"two"[..]), Some(&(1, 1, 2)));
        for name in 0..10 * CURSORS_LIMIT {
            note(&mut cursors, name.to_string().as_bytes(), Some((0, 0, 0)));
            assert!(cursors.len() <= CURSORS_LIMIT);
        }
    }
}
