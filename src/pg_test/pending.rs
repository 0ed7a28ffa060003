//! The scan of pending.

#[pgrx::pg_schema]
mod tests {
    use pgrx::datum::DatumWithOid;
    use pgrx::prelude::*;

    use crate::pg_test::one;

    /// Ends a sweep that took so long that no other is due for the rest of this test.
    fn exhausting_sweep() {
        assert!(
            one::<bool>("SELECT public._scan_begin()"),
            "a session's first scan is a sweep"
        );
        Spi::run("SELECT pg_sleep(0.5); SELECT public._scan_end(true, NULL, NULL)").unwrap();
        assert!(
            !one::<bool>("SELECT public._scan_begin()"),
            "the next sweep is due ten seconds later"
        );
    }

    fn position(lane: i16) -> i64 {
        one(&format!("SELECT public._scan_position({lane}::smallint)"))
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
    fn positions_start_at_zero_and_follow_each_lane() {
        assert_eq!((position(0), position(1)), (0, 0));
        exhausting_sweep();
        Spi::run("SELECT public._scan_end(false, 10, NULL)").unwrap();
        assert_eq!((position(0), position(1)), (10, 0));
        Spi::run("SELECT public._scan_end(false, NULL, 20)").unwrap();
        assert_eq!((position(0), position(1)), (10, 20));
        Spi::run("SELECT public._scan_end(false, 5, 25)").unwrap();
        assert_eq!((position(0), position(1)), (10, 25), "never backwards");
        // There are two lanes; anything else starts at the beginning and does no harm.
        assert_eq!((position(2), position(-1), position(i16::MAX)), (0, 0, 0));
    }

    #[pg_extern]
    fn a_sweep_sets_positions_back_to_what_it_took() {
        exhausting_sweep();
        Spi::run("SELECT public._scan_end(false, 1000, 2000)").unwrap();
        Spi::run("SELECT public._scan_end(true, NULL, 7)").unwrap();
        assert_eq!((position(0), position(1)), (1000, 7));
    }

    #[pg_extern]
    fn a_pick_starts_behind_the_position() {
        exhausting_sweep();
        Spi::run("SELECT public._scan_end(false, NULL, 100)").unwrap();
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
        exhausting_sweep();
        Spi::run("SELECT public._scan_end(false, 1000000, 1000000)").unwrap();
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
