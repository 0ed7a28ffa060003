//! The short way into a table: which tables the library may store a row in without a statement.
//!
//! A statement of one row spends nine parts of ten on itself: on the rights of its user, on expressions, slots and
//! plans, on triggers that are the library's own. A row that the library makes needs none of that where the table is
//! as the extension made it. What somebody else put there (a trigger, a constraint, a policy, a column, an index over
//! an expression) has a say in every row, so then the answer is no, and a statement does the work.
//!
//! What was found out is kept for as long as the server reports no change of the tables. It is used under the lock
//! that an INSERT takes, as long as it is asked for again once the lock is held. What that lock does not keep out
//! (VACUUM, indexes made CONCURRENTLY) waits by itself for those who do not know of it. Domains change without a
//! report, so the server is asked about each of their values, and once about those that all rows of a batch have.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::server;
use crate::table::{Table, is_simple};
use crate::trigger::Kind;

mod known;
mod says;
mod store;

/// More columns than a table of ours has, with some of somebody's own, dropped ones too.
const COLUMNS: usize = 64;
/// More indexes than a table of ours has.
const INDEXES: usize = 12;
/// More columns than an index of ours has.
const KEYS: usize = 4;
/// More columns of a domain than a table of ours has.
const DOMAINS: usize = 8;
/// More tables than a session has ways into.
const TABLES: usize = 8;

/// The lock that an INSERT takes on a table and its indexes.
pub const LOCK: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;

/// What a row needs that is stored in this table.
#[derive(Clone, Copy)]
pub struct Way {
    /// Where the values are to go that the library brings, counted from 0.
    places: [usize; COLUMNS],
    place_count: usize,
    /// What is in the other columns.
    values: [pg_sys::Datum; COLUMNS],
    nulls: [bool; COLUMNS],
    /// Columns of a domain, counted from 0, and which it is.
    domains: [(usize, pg_sys::Oid); DOMAINS],
    domain_count: usize,
    indexes: [Index; INDEXES],
    index_count: usize,
    /// Of the first column that the library brings; invalid when it has none.
    sequence: pg_sys::Oid,
}

/// The indexes of a way, open; null behind the last.
type Indexes = [pg_sys::Relation; INDEXES];

/// An index of the table, a B-tree over columns.
#[derive(Clone, Copy)]
struct Index {
    oid: pg_sys::Oid,
    unique: bool,
    /// Counted from 0.
    columns: [usize; KEYS],
    column_count: usize,
}

/// What the library brings into a table, and what it knows to be there.
pub struct Wanted {
    pub table: &'static CStr,
    pub columns: &'static [(&'static CStr, Kind)],
    /// Whether the first of them comes from a sequence.
    pub numbered: bool,
    /// What the library brings in the place of a default, which must be this one still: column and expression, as the
    /// server writes it without the schema's name. What is not among them, a statement would not leave to the table.
    pub defaults: &'static [(&'static CStr, &'static str)],
    /// CHECK constraints that every row which the library brings meets.
    pub checks: &'static [&'static str],
    /// Predicates of indexes, and whether a row that the library brings is in such an index.
    pub predicates: &'static [(&'static str, bool)],
    /// Triggers of INSERT that the library does the work of, or that a row which it brings leaves nothing to do: their
    /// definitions, as the server writes them without the schema's name.
    pub triggers: &'static [&'static str],
    /// The one foreign key: its column, and where it points.
    pub reference: Option<Reference>,
}

impl Wanted {
    /// Nothing is brought, and nothing is known to be there.
    pub const NOTHING: Self = Self {
        table: c"",
        columns: &[],
        numbered: false,
        defaults: &[],
        checks: &[],
        predicates: &[],
        triggers: &[],
        reference: None,
    };
}

/// A foreign key of one column.
pub struct Reference {
    pub column: &'static CStr,
    pub table: &'static CStr,
    pub key: &'static CStr,
}

/// A key that is referred to.
#[derive(Clone, Copy)]
pub struct Referred {
    pub table: pg_sys::Oid,
    pub index: pg_sys::Oid,
    pub column: i16,
}

/// The way into a table, if there is one, as it was found out: after so many changes, of which table.
type Known = (u64, pg_sys::Oid, Option<Way>);

/// The way into a table, looked for again when that has changed.
pub struct WayIn {
    wanted: Wanted,
    known: Cell<Option<Known>>,
}

impl WayIn {
    pub const fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            known: Cell::new(None),
        }
    }

    /// The table, open with its way; `None` where a statement has to do it, which says so if the caller may not.
    ///
    /// # Safety
    /// In a statement.
    pub unsafe fn open(&self, schema: pg_sys::Oid) -> Option<Opened> {
        if !may_write() {
            return None;
        }
        // SAFETY: by the caller's word. The relation is open and locked from here on.
        unsafe {
            let table = Table::open(schema, self.wanted.table, LOCK).ok()?;
            if !table.may(pg_sys::ACL_INSERT) {
                return None;
            }
            let id = table.id();
            watch([id]);
            let changes = changes();
            let way = match self.known.get() {
                Some((then, of, way)) if (then, of) == (changes, id) => way,
                _ => {
                    let way = Way::into(table.relation(), schema, &self.wanted);
                    let way = way.map(|(way, _)| way);
                    self.known.set(Some((changes, id, way)));
                    way
                }
            };
            let way = way.filter(Way::may_draw)?;
            // The frames behind own nothing.
            let indexes = pg_guard_ffi_boundary(|| way.open_indexes());
            Some(Opened {
                table,
                indexes,
                way,
            })
        }
    }
}

/// A table, open and locked for an INSERT, with the way into it. What fails in the server comes back as a panic, for
/// callers that own something.
pub struct Opened {
    pub table: Table,
    indexes: Indexes,
    way: Way,
}

impl Opened {
    /// The next id of the table.
    ///
    /// # Safety
    /// In a statement.
    pub unsafe fn next_id(&self) -> i64 {
        // SAFETY: by the caller's word; the frames behind own nothing.
        unsafe { pg_guard_ffi_boundary(|| self.way.next_id()) }
    }

    /// Gives all rows to come these values in the columns that were wanted last; a row brings the others.
    ///
    /// # Safety
    /// In a statement, and the values last as long as this; they are of the types that were wanted.
    pub unsafe fn fix<const N: usize>(&mut self, values: [pg_sys::Datum; N]) {
        let way = &mut self.way;
        // SAFETY: by the caller's word; the frames behind own nothing.
        unsafe { pg_guard_ffi_boundary(|| way.fix(values)) };
    }

    /// Stores a row of these values, in the order of the columns that were wanted.
    ///
    /// # Safety
    /// In a statement; the values are of the types that were wanted.
    pub unsafe fn store<const N: usize>(&self, values: [pg_sys::Datum; N]) {
        let (relation, indexes) = (self.table.relation(), &self.indexes);
        // SAFETY: by the caller's word; the relation is that of the way and locked since; the frames behind own nothing.
        unsafe { pg_guard_ffi_boundary(|| self.way.store_in(relation, indexes, values)) };
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if server::is_failing() {
            return;
        }
        // SAFETY: opened with the table, and nobody has them any more.
        unsafe { pg_guard_ffi_boundary(|| self.way.close_indexes(&self.indexes)) };
    }
}

/// Whether this transaction may write, and triggers are on as ever.
pub fn may_write() -> bool {
    // SAFETY: plain variables of this process.
    unsafe {
        !pg_sys::XactReadOnly
            && !pg_sys::IsInParallelMode()
            && pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_ORIGIN as i32
    }
}

const NO_INDEX: Index = Index {
    oid: pg_sys::InvalidOid,
    unique: false,
    columns: [0; KEYS],
    column_count: 0,
};

thread_local! {
    /// Tables whose changes matter.
    static WATCHED: Cell<[pg_sys::Oid; TABLES]> = const { Cell::new([pg_sys::InvalidOid; TABLES]) };
    /// How often one of them changed.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
    static WATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Counts changes of these tables from now on.
pub fn watch<const N: usize>(tables: [pg_sys::Oid; N]) {
    let mut watched = WATCHED.get();
    for table in tables {
        if watched.contains(&table) {
            continue;
        }
        if let Some(place) = watched.iter_mut().find(|one| **one == pg_sys::InvalidOid) {
            *place = table;
        } else {
            // The extension was dropped and came again: whoever still watches the others asks anew.
            watched = [pg_sys::InvalidOid; TABLES];
            watched[0] = table;
            CHANGES.set(CHANGES.get().wrapping_add(1));
        }
    }
    WATCHED.set(watched);
    if !WATCHES.replace(true) {
        // SAFETY: a guarded function of the expected shape, once in a process.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(note), pg_sys::Datum::null()) };
    }
}

/// How often tables that are watched changed so far.
pub fn changes() -> u64 {
    CHANGES.get()
}

#[pg_guard]
unsafe extern "C-unwind" fn note(_argument: pg_sys::Datum, table: pg_sys::Oid) {
    // Without an oid it may be any.
    if table == pg_sys::InvalidOid || WATCHED.get().contains(&table) {
        CHANGES.set(CHANGES.get().wrapping_add(1));
    }
}

impl Way {
    fn domains(&self) -> &[(usize, pg_sys::Oid)] {
        self.domains.get(..self.domain_count).unwrap_or_default()
    }

    fn indexes(&self) -> &[Index] {
        self.indexes.get(..self.index_count).unwrap_or_default()
    }

    /// The way into this table, and what its foreign key refers to; `None` where a statement has to do it.
    ///
    /// # Safety
    /// In a transaction; the relation is open and locked as for an INSERT.
    pub unsafe fn into(
        relation: pg_sys::Relation,
        schema: pg_sys::Oid,
        wanted: &Wanted,
    ) -> Option<(Self, Option<Referred>)> {
        // SAFETY: by the caller's word.
        unsafe {
            if !is_simple(relation) {
                return None;
            }
            let mut way = Self {
                places: [0; COLUMNS],
                place_count: wanted.columns.len(),
                values: [pg_sys::Datum::null(); COLUMNS],
                nulls: [true; COLUMNS],
                domains: [(0, pg_sys::InvalidOid); DOMAINS],
                domain_count: 0,
                indexes: [NO_INDEX; INDEXES],
                index_count: 0,
                sequence: pg_sys::InvalidOid,
            };
            let _full_names = says::FullNames::write();
            way.columns(relation, wanted)?;
            way.add_indexes(relation, wanted)?;
            let referred = known::triggers(relation, schema, wanted)?;
            Some((way, referred))
        }
    }

    /// # Safety
    /// As of [`Self::into`].
    unsafe fn columns(&mut self, relation: pg_sys::Relation, wanted: &Wanted) -> Option<()> {
        // SAFETY: by the caller's word; there are `natts` columns.
        unsafe {
            let descriptor = (*relation).rd_att;
            if !says::checks_are_known(relation, wanted.checks) {
                return None;
            }
            let count = usize::try_from((*descriptor).natts).ok()?;
            let mut found = 0;
            for column in 0..count {
                let attribute = &*server::attribute(descriptor, column);
                if attribute.attisdropped {
                    continue;
                }
                if attribute.attgenerated != 0 {
                    return None;
                }
                let name = CStr::from_ptr(attribute.attname.data.as_ptr());
                if pg_sys::get_typtype(attribute.atttypid) as u8 == pg_sys::TYPTYPE_DOMAIN {
                    // One of somebody's own may come to have a default.
                    let owner =
                        pg_sys::getExtensionOfObject(pg_sys::TypeRelationId, attribute.atttypid);
                    if owner == pg_sys::InvalidOid
                        || owner != pg_sys::get_extension_oid(c"mailroom".as_ptr(), true)
                    {
                        return None;
                    }
                    *self.domains.get_mut(self.domain_count)? = (column, attribute.atttypid);
                    self.domain_count += 1;
                }
                let expression =
                    pg_sys::build_column_default(relation, i32::from(attribute.attnum));
                if !says::default_is_known(relation, name, expression, wanted.defaults) {
                    return None;
                }
                let default = default(attribute, expression);
                if let Some(at) = wanted.columns.iter().position(|(known, _)| *known == name) {
                    let (_, kind) = wanted.columns.get(at)?;
                    let mut modifier = attribute.atttypmod;
                    let base = pg_sys::getBaseTypeAndTypmod(attribute.atttypid, &raw mut modifier);
                    // A value with a modifier would have to be fitted to it.
                    if !kind.is(base) || modifier != -1 {
                        return None;
                    }
                    *self.places.get_mut(at)? = column;
                    found += 1;
                    if at == 0 && wanted.numbered {
                        let Default::Sequence(sequence) = default else {
                            return None;
                        };
                        self.sequence = sequence;
                    }
                    continue;
                }
                match default {
                    Default::None if !attribute.attnotnull => {}
                    Default::Value(value) => {
                        *self.values.get_mut(column)? = value;
                        *self.nulls.get_mut(column)? = false;
                    }
                    _ => return None,
                }
            }
            (count <= COLUMNS && found == wanted.columns.len()).then_some(())
        }
    }

    /// # Safety
    /// As of [`Self::into`].
    unsafe fn add_indexes(&mut self, relation: pg_sys::Relation, wanted: &Wanted) -> Option<()> {
        // SAFETY: by the caller's word. Each index is open while it is looked at.
        unsafe {
            let list = pg_sys::RelationGetIndexList(relation);
            for at in 0..length(list) {
                let index = pg_sys::index_open(pg_sys::list_nth_oid(list, at), LOCK);
                let known = look_at(relation, index, wanted);
                pg_sys::index_close(index, LOCK);
                match known {
                    Looked::Nothing => {}
                    Looked::Usable(known) => {
                        *self.indexes.get_mut(self.index_count)? = known;
                        self.index_count += 1;
                    }
                    Looked::Other => return None,
                }
            }
        }
        Some(())
    }
}

/// What an INSERT has to do about an index.
enum Looked {
    /// Nothing: it is only being built, or not for rows of this kind.
    Nothing,
    Usable(Index),
    /// More than is done here.
    Other,
}

/// # Safety
/// The relation is open, and the index is one of it and open.
unsafe fn look_at(relation: pg_sys::Relation, index: pg_sys::Relation, wanted: &Wanted) -> Looked {
    // SAFETY: by the caller's word; `indkey` has `indnatts` columns.
    unsafe {
        let form = &*(*index).rd_index;
        if !form.indisready {
            return Looked::Nothing;
        }
        match says::predicate(relation, index, wanted.predicates) {
            says::Predicate::True => {}
            says::Predicate::False => return Looked::Nothing,
            says::Predicate::Other => return Looked::Other,
        }
        let count = usize::try_from(form.indnatts).unwrap_or(usize::MAX);
        let simple = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && form.indimmediate
            && !form.indisexclusion
            && count <= KEYS
            && pg_sys::RelationGetIndexExpressions(index).is_null();
        if !simple {
            return Looked::Other;
        }
        let mut known = Index {
            oid: form.indexrelid,
            unique: form.indisunique,
            column_count: count,
            ..NO_INDEX
        };
        for (at, column) in known.columns.iter_mut().enumerate().take(count) {
            let number = *form.indkey.values.as_ptr().add(at);
            match usize::try_from(number).map(|number| number.checked_sub(1)) {
                Ok(Some(number)) if number < COLUMNS => *column = number,
                _ => return Looked::Other,
            }
        }
        Looked::Usable(known)
    }
}

/// What the table puts into a column that an INSERT does not name.
enum Default {
    None,
    Value(pg_sys::Datum),
    Sequence(pg_sys::Oid),
    /// Something to be worked out.
    Other,
}

/// # Safety
/// The expression is the default of this column, or null.
unsafe fn default(attribute: &pg_sys::FormData_pg_attribute, node: *mut pg_sys::Node) -> Default {
    // SAFETY: by the caller's word; the tags say what the nodes are.
    unsafe {
        if attribute.attidentity != 0 {
            return Default::Other;
        }
        if node.is_null() {
            return Default::None;
        }
        if is_next_value(node) {
            let call = &*node.cast::<pg_sys::FuncExpr>();
            let argument = pg_sys::list_nth(call.args, 0).cast::<pg_sys::Node>();
            return match constant(argument) {
                Some(sequence) => {
                    Default::Sequence(pg_sys::Oid::from(sequence.constvalue.value() as u32))
                }
                None => Default::Other,
            };
        }
        if is_of_literals(node) {
            // There may be left a cast to be done.
            let node = pg_sys::eval_const_expressions(std::ptr::null_mut(), node);
            return match constant(node) {
                Some(constant) if constant.constisnull => Default::None,
                Some(constant) if constant.constbyval => Default::Value(constant.constvalue),
                _ => Default::Other,
            };
        }
        Default::Other
    }
}

/// Whether this is a call of nextval().
///
/// # Safety
/// A node.
unsafe fn is_next_value(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag says what it is.
    unsafe {
        (*node).type_ == pg_sys::NodeTag::T_FuncExpr
            && (*node.cast::<pg_sys::FuncExpr>()).funcid.to_u32() == pg_sys::F_NEXTVAL
    }
}

/// Whether nothing but the server's own functions makes this out of literals: one of somebody's own may be another
/// tomorrow.
///
/// # Safety
/// A node.
unsafe fn is_of_literals(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tags say what they are; the arguments are nodes.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Const {
            return true;
        }
        if (*node).type_ != pg_sys::NodeTag::T_FuncExpr {
            return false;
        }
        let call = &*node.cast::<pg_sys::FuncExpr>();
        call.funcid.to_u32() < pg_sys::FirstNormalObjectId
            && (0..length(call.args))
                .all(|at| is_of_literals(pg_sys::list_nth(call.args, at).cast()))
    }
}

/// # Safety
/// A node.
unsafe fn constant<'a>(node: *mut pg_sys::Node) -> Option<&'a pg_sys::Const> {
    // SAFETY: the tag says what it is.
    unsafe { ((*node).type_ == pg_sys::NodeTag::T_Const).then(|| &*node.cast::<pg_sys::Const>()) }
}

/// # Safety
/// A list of the server's, or null.
unsafe fn length(list: *const pg_sys::List) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { if list.is_null() { 0 } else { (*list).length } }
}
