//! Tier 1: what needs the library inside a transaction. Compiled with the feature `pg_test` only.
//!
//! Each function of schema `tests` is a test that fails by raising. `tests/pg_test.rs` calls each in a session
//! and a transaction of its own, which it rolls back. Nothing here may rely on another one having run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[pgrx::pg_schema]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use pgrx::datum::DatumWithOid;
    use pgrx::prelude::*;

    use crate::{random, server, settings};

    const KEY_A: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
    const KEY_B: &str = "cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe";
    const SIGN: &str = "SELECT public._sign('activation', '\\x0707070707070707070707070707070707070707070707070707070707070707', NULL)";

    fn one<T: FromDatum + IntoDatum>(query: &str) -> T {
        Spi::get_one(query).unwrap().expect("a value, not NULL")
    }

    /// The SQLSTATE that a statement ends with, "00000" when it succeeds. What it did is undone only if it
    /// fails.
    fn sqlstate(statement: &str) -> String {
        refusal(statement).0
    }

    /// SQLSTATE and message of a statement's failure. PL/pgSQL catches it, in a subtransaction of its own.
    fn refusal(statement: &str) -> (String, String) {
        Spi::run(
            "CREATE OR REPLACE FUNCTION pg_temp.refusal(statement text, OUT state text, OUT message text)
             LANGUAGE plpgsql AS $$
             BEGIN
                 EXECUTE statement;
                 state := '00000';
                 message := '';
             EXCEPTION WHEN OTHERS THEN
                 state := SQLSTATE;
                 message := SQLERRM;
             END;
             $$",
        )
        .unwrap();
        let found: (Option<String>, Option<String>) = Spi::get_two_with_args(
            "SELECT state, message FROM pg_temp.refusal($1)",
            &[statement.into()],
        )
        .unwrap();
        (found.0.unwrap(), found.1.unwrap())
    }

    /// Changes a setting until the end of the transaction.
    fn set(name: &str, value: &str) {
        let arguments: [DatumWithOid<'_>; 2] = [name.into(), value.into()];
        Spi::run_with_args("SELECT set_config($1, $2, true)", &arguments).unwrap();
    }

    /// Pearson's statistic of counts against a uniform distribution.
    fn chi_square(counts: &[u32]) -> f64 {
        let total: f64 = counts.iter().copied().map(f64::from).sum();
        let expected = total / counts.len() as f64;
        counts
            .iter()
            .map(|count| (f64::from(*count) - expected).powi(2) / expected)
            .sum()
    }

    /// A bound that uniform counts exceed once in more than a million million runs: nine standard deviations
    /// above the mean.
    fn generous(counts: &[u32]) -> f64 {
        let degrees = (counts.len() - 1) as f64;
        degrees + 9.0 * (2.0 * degrees).sqrt() + 50.0
    }

    fn assert_uniform(counts: &[u32], what: &str) {
        let found = chi_square(counts);
        assert!(
            found < generous(counts),
            "{what}: {found} over {} cells",
            counts.len()
        );
    }

    // ------------------------------------------------------------ randomness

    #[pg_extern]
    fn codes_are_five_digits_and_uniform() {
        let mut codes = vec![0_u32; 100_000];
        let mut digits = vec![vec![0_u32; 10]; 5];
        Spi::connect(|client| {
            let rows = client
                .select(
                    "SELECT public._random_code() FROM generate_series(1, 100000)",
                    None,
                    &[],
                )
                .unwrap();
            for row in rows {
                let code: String = row.get(1).unwrap().unwrap();
                assert_eq!(code.len(), 5, "{code}");
                for (place, digit) in code.chars().enumerate() {
                    digits[place][digit.to_digit(10).unwrap() as usize] += 1;
                }
                codes[code.parse::<usize>().unwrap()] += 1;
            }
        });
        let thousands: Vec<u32> = codes.chunks(100).map(|cells| cells.iter().sum()).collect();
        assert_uniform(&thousands, "codes by their first three digits");
        for (place, counts) in digits.iter().enumerate() {
            assert_uniform(counts, &format!("digit {place}"));
        }
        // 100,000 draws from 100,000 codes miss a share of 1/e of them; a poorer source misses more.
        let missed = codes.iter().filter(|count| **count == 0).count();
        assert!((36_000..=37_600).contains(&missed), "{missed} codes missed");
    }

    #[pg_extern]
    fn secrets_are_32_bytes_and_uniform() {
        let mut seen = HashSet::new();
        let mut bytes = vec![0_u32; 256];
        Spi::connect(|client| {
            let rows = client
                .select(
                    "SELECT public._random_secret() FROM generate_series(1, 10000)",
                    None,
                    &[],
                )
                .unwrap();
            for row in rows {
                let secret: Vec<u8> = row.get(1).unwrap().unwrap();
                assert_eq!(secret.len(), 32);
                for byte in &secret {
                    bytes[usize::from(*byte)] += 1;
                }
                assert!(seen.insert(secret), "a secret came twice");
            }
        });
        assert_eq!(seen.len(), 10_000);
        assert_uniform(&bytes, "bytes of secrets");
    }

    #[pg_extern]
    fn each_row_of_a_statement_draws_its_own() {
        // The functions are volatile: a planner that took them for stable would hand out one value to all.
        Spi::run(
            "INSERT INTO public.accounts (email, login, status)
             SELECT i || '@example.com', i, 'active' FROM generate_series(1, 500) i;
             INSERT INTO public.tokens (account, action)
             SELECT id, 'password_recovery' FROM public.accounts",
        )
        .unwrap();
        assert_eq!(
            one::<i64>("SELECT count(DISTINCT secret) FROM public.tokens"),
            500
        );
        assert!(one::<i64>("SELECT count(DISTINCT code) FROM public.tokens") > 450);
    }

    #[pg_extern]
    fn all_of_a_buffer_is_filled() {
        // A byte stays zero in 64 draws with probability 256^-64.
        let mut union = [0_u8; 48];
        for _ in 0..64 {
            let mut buffer = [0_u8; 48];
            assert!(random::fill(&mut buffer).is_ok());
            for (seen, byte) in union.iter_mut().zip(buffer) {
                *seen |= byte;
            }
        }
        assert!(union.iter().all(|byte| *byte != 0), "{union:?}");
    }

    // ------------------------------------------------------------ the key file

    /// A key file of this test's own, in force until the end of the transaction.
    struct KeyFile(PathBuf);

    impl KeyFile {
        fn new(content: &str) -> Self {
            let name = format!("test-{}.key", std::process::id());
            set("mailroom.key_file", &name);
            let file = Self(data_directory().join(name));
            file.write(content);
            file
        }

        fn write(&self, content: &str) {
            // A new file, so that not even its inode is that of the old one.
            let next = self.0.with_extension("next");
            fs::write(&next, content).unwrap();
            fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(next, &self.0).unwrap();
        }

        fn chmod(&self, mode: u32) {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn remove(&self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    /// What makes a key file useless.
    type Breakage = fn(&KeyFile);

    impl Drop for KeyFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn data_directory() -> PathBuf {
        PathBuf::from(one::<String>("SELECT current_setting('data_directory')"))
    }

    #[pg_extern]
    fn the_key_file_is_read_once_a_transaction() {
        let file = KeyFile::new(KEY_A);
        let by_a: String = one(SIGN);
        // A batch is signed with one key, whatever happens to the file meanwhile.
        file.write(KEY_B);
        assert_eq!(one::<String>(SIGN), by_a);
        file.chmod(0o644);
        assert_eq!(one::<String>(SIGN), by_a);
        file.write("rubbish");
        assert_eq!(one::<String>(SIGN), by_a);
        file.remove();
        assert_eq!(one::<String>(SIGN), by_a);
        file.write(KEY_A);
    }

    #[pg_extern]
    fn another_path_is_in_force_at_once() {
        let file = KeyFile::new(KEY_A);
        let by_a: String = one(SIGN);
        let other = file.0.with_extension("other");
        fs::write(&other, KEY_B).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        set("mailroom.key_file", other.to_str().unwrap());
        let by_b: String = one(SIGN);
        fs::remove_file(&other).unwrap();
        assert_ne!(by_a, by_b);
        set("mailroom.key_file", file.0.to_str().unwrap());
        assert_eq!(one::<String>(SIGN), by_a);
    }

    #[pg_extern]
    fn a_mended_file_works_in_the_transaction_that_found_it_broken() {
        let file = KeyFile::new("rubbish");
        assert_eq!(sqlstate(SIGN), "F0000");
        file.write(KEY_A);
        assert_eq!(sqlstate(SIGN), "00000");
    }

    #[pg_extern]
    fn a_broken_file_has_a_sqlstate_of_its_kind_and_keeps_its_content() {
        let file = KeyFile::new("");
        let cases: [(&str, Breakage); 7] = [
            ("58P01", |file| file.remove()),
            ("F0000", |file| file.write("")),
            ("F0000", |file| file.write(&KEY_A[1..])),
            ("F0000", |file| file.write(&format!("{KEY_A}{KEY_B}"))),
            ("F0000", |file| file.write(&KEY_A.repeat(2000))),
            ("F0000", |file| {
                file.write(KEY_A);
                file.chmod(0o640);
            }),
            ("42501", |file| {
                file.write(KEY_A);
                file.chmod(0);
            }),
        ];
        for (number, (expected, break_it)) in cases.iter().enumerate() {
            break_it(&file);
            for statement in [SIGN, "SELECT public._verify('', 'activation', NULL)"] {
                let (state, message) = refusal(statement);
                assert_eq!(state, *expected, "case {number}: {message}");
                let lower = message.to_lowercase();
                assert!(
                    !lower.contains("beef") && !lower.contains("babe"),
                    "{message}"
                );
            }
        }
        file.write(KEY_A);
        assert_eq!(sqlstate(SIGN), "00000");
    }

    #[pg_extern]
    fn create_key_file_makes_one_and_never_replaces_one() {
        let file = KeyFile::new(KEY_A);
        Spi::run("SELECT public._create_key_file()").unwrap();
        assert_eq!(fs::read_to_string(&file.0).unwrap(), KEY_A);
        file.remove();
        Spi::run("SELECT public._create_key_file()").unwrap();
        let content = fs::read_to_string(&file.0).unwrap();
        assert_eq!(content.trim_end().len(), 64);
        assert_eq!(
            fs::metadata(&file.0).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        file.remove();
        Spi::run("SELECT public._create_key_file()").unwrap();
        assert_ne!(
            fs::read_to_string(&file.0).unwrap(),
            content,
            "a new key is random"
        );
        // One that is there but no good is told to whoever installs.
        file.chmod(0o644);
        assert_eq!(sqlstate("SELECT public._create_key_file()"), "F0000");
    }

    #[pg_extern]
    fn the_key_file_is_in_the_data_directory_unless_it_says_otherwise() {
        let data = data_directory();
        assert_eq!(settings::key_file(), data.join("mailroom.key"));
        set("mailroom.key_file", "keys/mail.key");
        assert_eq!(settings::key_file(), data.join("keys/mail.key"));
        set("mailroom.key_file", "/etc/mailroom/key");
        assert_eq!(settings::key_file(), Path::new("/etc/mailroom/key"));
        set("mailroom.key_file", "");
        assert_eq!(settings::key_file(), data.join("mailroom.key"));
    }

    // ------------------------------------------------------------ signing

    #[pg_extern]
    fn sign_says_what_is_wrong_with_its_arguments() {
        let secret = "'\\x0707070707070707070707070707070707070707070707070707070707070707'";
        let cases = [
            (format!("NULL, {secret}, NULL"), "22004"),
            ("'activation', NULL, NULL".to_owned(), "22004"),
            (format!("'password_recovery', {secret}, NULL"), "22004"),
            ("'activation', '\\x07', NULL".to_owned(), "22023"),
            (format!("'password_recovery', {secret}, '1234'"), "22023"),
            (format!("'password_recovery', {secret}, '12345 '"), "22023"),
            (format!("'password_recovery', {secret}, ''"), "22023"),
            // Out of reach of mailroom_sign, whose argument is an enum.
            (format!("'invitation', {secret}, NULL"), "22023"),
            (format!("'Activation', {secret}, NULL"), "22023"),
            (format!("'', {secret}, NULL"), "22023"),
        ];
        for (arguments, expected) in cases {
            let (state, message) = refusal(&format!("SELECT public._sign({arguments})"));
            assert_eq!(state, expected, "{arguments}: {message}");
        }
    }

    #[pg_extern]
    fn verify_answers_false_to_whatever_is_not_a_token() {
        for arguments in [
            "NULL, 'activation', NULL",
            "'', NULL, NULL",
            "'', 'invitation', NULL",
            "'', 'password_recovery', NULL",
            "'', 'password_recovery', '1'",
            "repeat('A', 86), 'activation', NULL",
            "repeat('A', 10000000), 'activation', NULL",
            "E'\\u00e9', 'activation', NULL",
        ] {
            assert!(
                !one::<bool>(&format!("SELECT public._verify({arguments})")),
                "{arguments}"
            );
        }
    }

    #[pg_extern]
    fn what_is_signed_verifies() {
        let genuine: i64 = one(
            "SELECT count(*)
             FROM (SELECT public._random_secret() AS secret, public._random_code() AS code
                   FROM generate_series(1, 1000) OFFSET 0) t
             WHERE public._verify(public._sign('activation', secret, NULL), 'activation', NULL)
               AND public._verify(public._sign('password_recovery', secret, code), 'password_recovery', code)
               AND NOT public._verify(public._sign('activation', secret, NULL), 'password_recovery', code)
               AND NOT public._verify(public._sign('password_recovery', secret, code), 'activation', NULL)",
        );
        assert_eq!(genuine, 1000);
    }

    #[pg_extern]
    fn a_sqlstate_is_five_characters() {
        assert_eq!(
            server::sqlstate(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE),
            "22023"
        );
        assert_eq!(
            server::sqlstate(PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR),
            "F0000"
        );
    }

    // ------------------------------------------------------------ settings

    #[pg_extern]
    fn settings_have_their_defaults() {
        let rule = settings::batch_rule();
        assert_eq!((rule.limit, rule.linger), (100, Duration::from_secs(1)));
        assert_eq!(settings::poll_interval(), Duration::from_secs(30));
        assert_eq!(settings::channel().to_str().unwrap(), "token_insert");
        assert_eq!(one::<i64>("SELECT public._recovery_ttl()"), 900);
        assert_eq!(one::<i64>("SELECT public._activation_ttl()"), 86_400);
        assert_eq!(one::<i32>("SELECT public._batch_limit()"), 100);
        assert!(one::<i32>("SELECT public._max_attempts()") > 0);
        assert_eq!(settings::link_base_url(), None);
    }

    #[pg_extern]
    fn getters_follow_the_settings() {
        set("mailroom.batch_limit", "7");
        set("mailroom.batch_timeout", "2500ms");
        set("mailroom.poll_interval", "1min");
        set("mailroom.recovery_ttl", "2h");
        set("mailroom.max_attempts", "3");
        set("mailroom.channel", "Kanal für Post");
        let rule = settings::batch_rule();
        assert_eq!((rule.limit, rule.linger), (7, Duration::from_millis(2500)));
        assert_eq!(one::<i32>("SELECT public._batch_limit()"), 7);
        assert_eq!(settings::poll_interval(), Duration::from_secs(60));
        assert_eq!(one::<i64>("SELECT public._recovery_ttl()"), 7200);
        assert_eq!(one::<i32>("SELECT public._max_attempts()"), 3);
        assert_eq!(settings::channel().to_str().unwrap(), "Kanal für Post");
    }

    #[pg_extern]
    fn numbers_are_held_to_their_bounds() {
        let names: Vec<String> = Spi::connect(|client| {
            client
                .select(
                    "SELECT name FROM pg_settings WHERE name LIKE 'mailroom.%' AND vartype = 'integer'
                       AND context NOT IN ('postmaster', 'sighup')",
                    None,
                    &[],
                )
                .unwrap()
                .map(|row| row.get(1).unwrap().unwrap())
                .collect()
        });
        assert!(names.len() >= 5, "{names:?}");
        for name in names {
            let bound = |which: &str| -> i64 {
                one(&format!(
                    "SELECT {which}::bigint FROM pg_settings WHERE name = '{name}'"
                ))
            };
            let (low, high, boot) = (bound("min_val"), bound("max_val"), bound("boot_val"));
            assert!(
                low <= boot && boot <= high && high < i64::from(i32::MAX),
                "{name}"
            );
            for (value, expected) in [
                (low - 1, "22023"),
                (low, "00000"),
                (high, "00000"),
                (high + 1, "22023"),
            ] {
                let state = sqlstate(&format!("SET LOCAL {name} = {value}"));
                assert_eq!(state, expected, "{name} = {value}");
            }
        }
    }

    #[pg_extern]
    fn every_setting_is_explained_and_is_the_superusers() {
        let careless: i64 = one("SELECT count(*) FROM pg_settings
             WHERE name LIKE 'mailroom.%'
               AND (coalesce(short_desc, '') = '' OR coalesce(extra_desc, '') = ''
                    OR context NOT IN ('superuser', 'sighup', 'postmaster'))");
        assert_eq!(careless, 0);
        assert!(
            one::<i64>("SELECT count(*) FROM pg_settings WHERE name LIKE 'mailroom.%'") >= 8,
            "the settings are there"
        );
        assert_eq!(sqlstate("SET LOCAL mailroom.nonsense = 1"), "42602");
    }

    #[pg_extern]
    fn a_channel_must_be_one_that_notify_takes() {
        let longest = "c".repeat(63);
        set("mailroom.channel", &longest);
        Spi::run("SELECT pg_notify(current_setting('mailroom.channel'), '')").unwrap();
        for bad in ["", &"c".repeat(64), &"ü".repeat(32)] {
            let state = sqlstate(&format!("SET LOCAL mailroom.channel = '{bad}'"));
            assert_eq!(state, "22023", "{bad}");
        }
        assert_eq!(settings::channel().to_str().unwrap(), longest);
    }

    #[pg_extern]
    fn the_link_base_has_no_slash_at_its_end() {
        for (given, expected) in [
            ("https://example.com", Some("https://example.com")),
            ("https://example.com/", Some("https://example.com")),
            ("https://example.com/a//", Some("https://example.com/a")),
            ("", None),
        ] {
            set("mailroom.link_base_url", given);
            let found = settings::link_base_url();
            assert_eq!(found.as_deref(), expected);
        }
    }

    // ------------------------------------------------------------ the scan of pending

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
