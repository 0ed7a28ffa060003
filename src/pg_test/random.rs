//! Secrets and codes are random.

#[pgrx::pg_schema]
mod tests {
    use std::collections::HashSet;

    use pgrx::prelude::*;

    use crate::pg::random;
    use crate::pg_test::one;

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
}
