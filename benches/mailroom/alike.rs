//! Whether calls can be told apart by the time they take.
//!
//! By the method of dudect (Reparaz, Balasch, Verbauwhede: "Dude, is my code constant time?", DATE 2017): the calls of
//! several kinds are made one at a time over one connection, in random order, so that other load of the machine affects
//! all alike. Each kind is compared with the first by Welch's t-test, of all calls and of the faster ones alone, which
//! have less noise in them. There are as many calls as it takes to tell a difference of [`TELLING`] from none.

use std::time::Instant;

use crate::table::{Row, Target, Unit, percentile};

/// Kinds whose means are more standard errors apart differ: by chance once in 100,000 comparisons.
const SIGNIFICANT: f64 = 4.5;
/// Milliseconds of a difference that would be significant.
const TELLING: f64 = 0.001;
/// The parts of the calls, the fastest ones, that are compared.
const PARTS: [f64; 6] = [1.0, 0.99, 0.95, 0.9, 0.75, 0.5];
/// Calls of a kind between two looks at the result.
const ROUND: usize = 2_000;
/// Calls of a kind after which it is given up.
const PATIENCE: usize = 200_000;

/// One kind of call.
pub struct Kind<'a> {
    /// For people.
    pub name: &'a str,
    /// Makes a call, the one of this number.
    pub call: Box<dyn FnMut(usize) + 'a>,
}

/// Rows that compare all kinds with the first. With a `limit`, that number of calls of each is made.
pub fn compare(subject: &str, limit: Option<usize>, kinds: &mut [Kind<'_>]) -> Vec<Row> {
    let mut times = vec![Vec::new(); kinds.len()];
    let tests = loop {
        call(kinds, limit.unwrap_or(ROUND), &mut times);
        let mut sorted = times.clone();
        for times in &mut sorted {
            times.sort_by(f64::total_cmp);
        }
        let (first, others) = sorted.split_at(1);
        let tests: Vec<Test> = others.iter().map(|times| test(times, &first[0])).collect();
        let told = tests.iter().all(|test| test.telling <= TELLING);
        if told || limit.is_some() {
            break tests;
        }
        assert!(
            times[0].len() < PATIENCE,
            "{subject}: too much noise to tell {TELLING} ms in {PATIENCE} calls"
        );
    };
    let calls = times[0].len();
    kinds[1..]
        .iter()
        .zip(tests)
        .map(|(kind, test)| {
            eprintln!(
                "   {}: {:.2} us apart, {:.2} us would tell",
                kind.name,
                test.apart * 1_000.0,
                test.telling * 1_000.0
            );
            let name = format!("{subject}, t of {calls}: {} / {}", kind.name, kinds[0].name);
            let mut row = Row::new(name, Unit::Score)
                .against(SIGNIFICANT)
                .aiming_at(Some(Target::NeverAbove(SIGNIFICANT)));
            if limit.is_none() {
                row = row.that_must_pass();
            }
            row.add_one(test.t);
            row
        })
        .collect()
}

/// Makes so many calls of each kind, in random order, and adds the milliseconds that each took.
fn call(kinds: &mut [Kind<'_>], count: usize, times: &mut [Vec<f64>]) {
    let mut order: Vec<usize> = (0..kinds.len() * count).map(|i| i % kinds.len()).collect();
    shuffle(&mut order);
    for kind in order {
        let number = times[kind].len();
        let begin = Instant::now();
        (kinds[kind].call)(number);
        times[kind].push(begin.elapsed().as_secs_f64() * 1_000.0);
    }
}

/// Fisher and Yates's shuffle.
fn shuffle(order: &mut [usize]) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    for i in (1..order.len()).rev() {
        let random = RandomState::new().build_hasher().finish();
        order.swap(i, (random % (i as u64 + 1)) as usize);
    }
}

/// What a comparison of two samples says.
struct Test {
    /// The largest t of any part.
    t: f64,
    /// How far apart the means of that part are.
    apart: f64,
    /// How far apart those of the part with the least noise would have to be.
    telling: f64,
}

/// Compares two sorted samples, each part of them by Welch's t-test.
fn test(a: &[f64], b: &[f64]) -> Test {
    let mut both = [a, b].concat();
    both.sort_by(f64::total_cmp);
    let mut result = Test {
        t: 0.0,
        apart: 0.0,
        telling: f64::INFINITY,
    };
    for part in PARTS {
        let most = percentile(&both, part);
        let [a, b] =
            [a, b].map(|times| moments(&times[..times.partition_point(|time| *time <= most)]));
        let error = (a.variance / a.count + b.variance / b.count).sqrt();
        let t = (a.mean - b.mean).abs() / error;
        if t > result.t {
            result.t = t;
            result.apart = a.mean - b.mean;
        }
        result.telling = result.telling.min(SIGNIFICANT * error);
    }
    result
}

struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

fn moments(times: &[f64]) -> Moments {
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    Moments {
        count,
        mean,
        variance: squares / (count - 1.0),
    }
}
