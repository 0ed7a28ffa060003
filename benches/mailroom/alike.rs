//! Whether calls can be told apart by the time they take.
//!
//! The calls of several kinds are made one at a time over one connection, in random order, so that whatever
//! else the machine does hits all alike. Each kind is compared with the first by its median, its 90th
//! percentile, and the Mann-Whitney test, which asks whether a call of the one kind is likelier to take
//! longer than one of the other.

use std::time::Instant;

use crate::table::{Row, Target, Unit, percentile};

/// Below this the test says that the kinds differ.
const SIGNIFICANT: f64 = 0.01;

/// One kind of call.
pub struct Kind<'a> {
    /// For people.
    pub name: &'a str,
    /// Makes a call, the one of this number.
    pub call: Box<dyn FnMut(usize) + 'a>,
}

/// Rows for all kinds against the first, from so many calls each.
pub fn compare(subject: &str, count: usize, kinds: &mut [Kind<'_>]) -> Vec<Row> {
    let mut order: Vec<usize> = (0..kinds.len() * count).map(|i| i % kinds.len()).collect();
    shuffle(&mut order);
    let mut times = vec![Vec::with_capacity(count); kinds.len()];
    for kind in order {
        let number = times[kind].len();
        let begin = Instant::now();
        (kinds[kind].call)(number);
        times[kind].push(begin.elapsed().as_secs_f64() * 1_000.0);
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let (first, others) = times.split_at(1);
    let first = &first[0];
    let quartiles = |times: &[f64]| [0.25, 0.5, 0.75].map(|part| percentile(times, part) * 1_000.0);
    eprintln!(
        "   {}: quartiles {:.1?} us",
        kinds[0].name,
        quartiles(first)
    );
    let mut rows = Vec::new();
    for (kind, times) in kinds[1..].iter().zip(others) {
        eprintln!("   {}: quartiles {:.1?} us", kind.name, quartiles(times));
        let name = |part: &str| {
            format!(
                "{subject}, {part} of {count}: {} / {}",
                kind.name, kinds[0].name
            )
        };
        for (part, value, target) in [
            ("p50", 0.5, Some(Target::RatioWithin(0.02))),
            ("p90", 0.9, None),
        ] {
            let mut row = Row::new(name(part), Unit::Millis).aiming_at(target);
            row.add(percentile(times, value), percentile(first, value));
            rows.push(row);
        }
        let mut row = Row::new(name("Mann-Whitney p, significant below"), Unit::Probability)
            .against(SIGNIFICANT)
            .aiming_at(Some(Target::AtLeast(SIGNIFICANT)));
        row.add_one(mann_whitney(times, first));
        rows.push(row);
    }
    rows
}

/// Fisher and Yates's shuffle.
fn shuffle(order: &mut [usize]) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    for i in (1..order.len()).rev() {
        let random = RandomState::new().build_hasher().finish();
        order.swap(i, (random % (i as u64 + 1)) as usize);
    }
}

/// The two-sided probability of a difference like that between two sorted samples of one distribution, by
/// the normal approximation with a correction for ties.
fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = a.iter().map(|value| (*value, true)).collect();
    all.extend(b.iter().map(|value| (*value, false)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut ranks, mut ties, mut start) = (0.0, 0.0, 0);
    while start < all.len() {
        let equal = all[start..]
            .iter()
            .take_while(|value| value.0 == all[start].0)
            .count();
        // Equal values share the mean of their ranks.
        let rank = start as f64 + (equal as f64 + 1.0) / 2.0;
        let ours = all[start..start + equal].iter().filter(|v| v.1).count();
        ranks += rank * ours as f64;
        ties += (equal as f64).powi(3) - equal as f64;
        start += equal;
    }
    let (n, m, total) = (a.len() as f64, b.len() as f64, all.len() as f64);
    let u = ranks - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    let z = (u - n * m / 2.0).abs() / variance.sqrt();
    complementary_error(z / std::f64::consts::SQRT_2)
}

/// erfc, with an error below 1.5e-7: Abramowitz and Stegun, 7.1.26.
fn complementary_error(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ]
    .iter()
    .fold(0.0, |sum, factor| (sum + factor) * t);
    series * (-x * x).exp()
}
