//! The settings of the pace: how many messages a second each worker sends.

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

use mailroom_core::deliver::rate::Rate;

static RATE_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(0);
static RATE_BURST: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Defines them. Called by [`super::define`].
pub fn define() {
    GucRegistry::define_int_guc(
        c"mailroom.rate_limit",
        c"Messages a second that the worker of a database sends.",
        c"0 for no limit. Where several databases share an account at a provider, each has its share.",
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
