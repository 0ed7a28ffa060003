//! Settings: defaults, bounds, checks.

#[pgrx::pg_schema]
mod tests {
    use std::time::Duration;

    use pgrx::prelude::*;

    use crate::pg_test::{one, set, sqlstate};
    use crate::settings;

    #[pg_extern]
    fn settings_have_their_defaults() {
        let rule = settings::batch_rule();
        assert_eq!((rule.limit, rule.timeout), (100, Duration::from_secs(1)));
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
        assert_eq!((rule.limit, rule.timeout), (7, Duration::from_millis(2500)));
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
}
