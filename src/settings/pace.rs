//! The settings of the pace: how many messages a second all workers of the server send together.
//!
//! They are in `postgresql.conf` or nowhere: the workers of all databases share one bucket, and a rate that
//! one database could set would be the others' too.

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::delivery::pace::Rate;

static RATE_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(0);
static RATE_BURST: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Defines them. Called by [`super::define`].
pub fn define() {
    GucRegistry::define_int_guc(
        c"mailroom.rate_limit",
        c"Messages a second that the workers of all databases send together.",
        c"What the provider allows its customer; 0 for no limit.",
        &RATE_LIMIT,
        0,
        1_000_000,
        GucContext::Sighup,
        GucFlags::empty(),
    );
    GucRegistry::define_int_guc(
        c"mailroom.rate_burst",
        c"How many of them may go at once after a rest.",
        c"0 for what mailroom.rate_limit allows in a tenth of a second, two at least; batches are at most half as large.",
        &RATE_BURST,
        0,
        1_000_000,
        GucContext::Sighup,
        GucFlags::empty(),
    );
}

/// The rate in force; `None` without one.
pub fn rate() -> Option<Rate> {
    let per_second = RATE_LIMIT.get().unsigned_abs();
    (per_second > 0).then(|| Rate::new(per_second, RATE_BURST.get().unsigned_abs()))
}
