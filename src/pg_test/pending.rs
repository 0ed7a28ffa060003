//! The scan of pending.

#[pgrx::pg_schema]
mod tests {
    use pgrx::datum::DatumWithOid;
    use pgrx::prelude::*;

    use crate::pg_test::one;

    /// Begins a scan that is no sweep, because sweeps have taken so much time, with these positions.
    fn scan_from(urgent: i64, normal: i64) {
        assert!(
            one::<bool>("SELECT public._scan_begin('pending')"),
            "a session's first scan is a sweep"
        );
        for (lane, id) in [(0, urgent), (1, normal)] {
            Spi::run(&format!(
                "SELECT public._scan_note('pending', {lane}::smallint, '-infinity', {id}, false)"
            ))
            .unwrap();
        }
        Spi::run("SELECT public._scan_spend('pending', 1000)").unwrap();
        assert!(!one::<bool>("SELECT public._scan_begin('pending')"));
    }

    fn pick(wanted: i32) -> Vec<i64> {
        let mut picked: Vec<i64> = one(&format!("SELECT public._delete_pending({wanted})"));
        picked.sort_unstable();
        picked
    }

    fn queue(lane: i16, tokens: &[i64]) {
        let arguments: [DatumWithOid<'_>; 2] = [lane.into(), tokens.to_vec().into()];
        Spi::run_with_args(
            "INSERT INTO public.pending (lane, token_id) SELECT $1, unnest($2)",
            &arguments,
        )
        .unwrap();
    }

    #[pg_extern]
    fn a_pick_starts_behind_the_position() {
        scan_from(0, 100);
        queue(1, &[50, 101, 102]);
        assert_eq!(
            pick(2),
            [101, 102],
            "what lies below is left for the next sweep"
        );
        assert_eq!(pick(1), [50], "which comes before anybody is sent away");
    }

    #[pg_extern]
    fn a_pick_that_finds_too_few_looks_below_its_position() {
        scan_from(1_000_000, 1_000_000);
        queue(1, &[3, 5]);
        queue(0, &[4]);
        assert_eq!(pick(10), [3, 4, 5]);
        assert!(pick(10).is_empty());
        assert_eq!(one::<i64>("SELECT count(*) FROM public.pending"), 0);
    }

    #[pg_extern]
    fn a_pick_takes_the_urgent_first_and_then_the_oldest() {
        queue(1, &[1, 2, 3]);
        queue(0, &[7, 8]);
        assert_eq!(pick(1), [7]);
        assert_eq!(pick(2), [1, 8]);
        assert_eq!(pick(2), [2, 3]);
    }

    #[pg_extern]
    fn a_pick_that_is_rolled_back_finds_the_rows_again() {
        queue(1, &[1, 2, 3]);
        // The position outlives the subtransaction; the rows come back below it.
        Spi::run(
            "DO $$ BEGIN PERFORM public._delete_pending(3); RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN END $$",
        )
        .unwrap();
        assert_eq!(pick(3), [1, 2, 3]);
    }

    #[pg_extern]
    fn a_truncate_moves_the_positions_back() {
        scan_from(1_000_000, 1_000_000);
        Spi::run("TRUNCATE public.accounts, public.tokens, public.pending, public.link_requests, public.outbox RESTART IDENTITY CASCADE").unwrap();
        let start = "SELECT id FROM public._scan_start('pending', 1::smallint)";
        assert_eq!(one::<i64>(start), 0);
    }

    #[pg_extern]
    fn a_look_at_the_queue_sees_below_the_position_when_a_sweep_is_due() {
        queue(1, &[1, 2]);
        queue(0, &[3]);
        let look = "SELECT ARRAY[waiting, urgent::int] FROM public._pending_summary(10)";
        assert_eq!(one::<Vec<i32>>(look), [3, 1]);
        let limited = "SELECT ARRAY[waiting, urgent::int] FROM public._pending_summary(1)";
        assert_eq!(
            one::<Vec<i32>>(limited),
            [2, 1],
            "no further than the limit in each lane"
        );
        assert_eq!(
            one::<i64>("SELECT count(*) FROM public.pending"),
            3,
            "a look takes nothing"
        );
    }

    #[pg_extern]
    fn the_library_knows_that_it_was_preloaded() {
        assert!(crate::is_preloaded());
    }
}
