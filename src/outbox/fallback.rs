//! Where this session goes on to look for mail of a paused transport that another may deliver.
//!
//! Mail that stays with its transport may be any number, and one call looks at so many rows and no more: the next one goes
//! on behind them, and after the last row begins at the first. The state belongs to this process alone; losing it costs a
//! look at rows that were looked at before.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pgrx::prelude::*;

/// Transports that a cursor is kept for.
const TRANSPORTS: usize = 64;

/// A row by its priority, `send_at` in microseconds, and id.
type Row = (i16, i64, i64);

thread_local! {
    static CURSORS: RefCell<BTreeMap<Box<[u8]>, Row>> = const { RefCell::new(BTreeMap::new()) };
}

/// Keeps or, with `None`, forgets a cursor. If there are too many, all of them begin at the first row again.
fn note(cursors: &mut BTreeMap<Box<[u8]>, Row>, transport: &[u8], row: Option<Row>) {
    let Some(row) = row else {
        cursors.remove(transport);
        return;
    };
    if cursors.len() >= TRANSPORTS && !cursors.contains_key(transport) {
        cursors.clear();
    }
    cursors.insert(transport.into(), row);
}

#[pg_extern(sql = false)]
fn _fallback_cursor(
    transport: &[u8],
) -> TableIterator<'static, (name!(priority, i16), name!(send_at, i64), name!(id, i64))> {
    let row = CURSORS.with_borrow(|cursors| cursors.get(transport).copied());
    TableIterator::new(row)
}

#[pg_extern(sql = false)]
fn _fallback_note(
    transport: Option<&[u8]>,
    priority: Option<i16>,
    send_at: Option<i64>,
    id: Option<i64>,
) {
    let Some(transport) = transport else { return };
    let row = priority.zip(send_at).zip(id);
    let row = row.map(|((priority, send_at), id)| (priority, send_at, id));
    CURSORS.with_borrow_mut(|cursors| note(cursors, transport, row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_kept_by_transport_and_bounded() {
        let mut cursors = BTreeMap::new();
        note(&mut cursors, b"one", Some((0, 1, 2)));
        note(&mut cursors, b"two", Some((1, 1, 2)));
        note(&mut cursors, b"one", None);
        assert_eq!(cursors.get(&b"one"[..]), None);
        assert_eq!(cursors.get(&b"two"[..]), Some(&(1, 1, 2)));
        for transport in 0..10 * TRANSPORTS {
            note(
                &mut cursors,
                transport.to_string().as_bytes(),
                Some((0, 0, 0)),
            );
            assert!(cursors.len() <= TRANSPORTS);
        }
    }
}
