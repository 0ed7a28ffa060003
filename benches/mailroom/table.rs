//! The result: rows, and how they are printed. A row whose B was not measured shows it, marked by "=", and no ratio.

use std::fmt::Write;

/// What a row's two values are measured in.
#[derive(Clone, Copy)]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Kilobytes.
    Kilobytes,
    /// How many.
    Count,
    /// A figure of a statistical test.
    Score,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond if value >= 10_000.0 => format!("{:.1}k/s", value / 1_000.0),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Score => format!("{value:.2}"),
            Self::Millis if value < 1.0 => format!("{value:.4} ms"),
            Self::Millis => format!("{value:.2} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Kilobytes => format!("{value:.0} kB"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// What a row has to show.
#[derive(Clone, Copy)]
pub enum Target {
    /// The median ratio is at least this.
    RatioAtLeast(f64),
    /// The median ratio is at most this.
    RatioAtMost(f64),
    /// The median ratio is below this.
    RatioBelow(f64),
    /// The median ratio differs from 1 by no more than this.
    RatioWithin(f64),
    /// A is at most this in every round, in the row's unit.
    NeverAbove(f64),
}

/// One comparison.
pub struct Row {
    name: String,
    unit: Unit,
    rounds: Vec<(f64, f64)>,
    /// What A is compared with, when that is a number and nothing that was measured.
    constant: Option<f64>,
    target: Option<Target>,
    must_pass: bool,
}

impl Row {
    /// A comparison without rounds so far; the name says what A and B are.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            rounds: Vec::new(),
            constant: None,
            target: None,
            must_pass: false,
        }
    }

    /// The same, of something that is compared with a number.
    pub fn against(self, constant: f64) -> Self {
        Self {
            constant: Some(constant),
            ..self
        }
    }

    /// The same with a target, or without one.
    pub fn aiming_at(self, target: Option<Target>) -> Self {
        Self { target, ..self }
    }

    /// The same, of which a missed target is a failure.
    pub fn that_must_pass(self) -> Self {
        Self {
            must_pass: true,
            ..self
        }
    }

    /// Whether that happened.
    pub fn failed(&self) -> bool {
        self.must_pass && self.cells()[6] == "MISSED"
    }

    /// Adds a round of a row whose B is a number.
    pub fn add_one(&mut self, a: f64) {
        let constant = self.constant.expect("a row with a constant");
        self.add(a, constant);
    }

    /// Adds a round and reports it.
    pub fn add(&mut self, a: f64, b: f64) {
        let (name, shown) = (&self.name, [a, b].map(|value| self.unit.show(value)));
        match self.constant {
            Some(_) => eprintln!("   {name}: {}", shown[0]),
            None => eprintln!("   {name}: {}, {}: {:.3}", shown[0], shown[1], a / b),
        }
        self.rounds.push((a, b));
    }

    fn column(&self, of: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The cells of the printed row.
    fn cells(&self) -> [String; 7] {
        let (a, b) = (self.column(|round| round.0), self.column(|round| round.1));
        let ratios = self.column(|round| round.0 / round.1);
        let (goal, verdict) = self.judge(&a, &ratios);
        let range = |values: &[f64], show: &dyn Fn(f64) -> String| {
            let [low, high] = [0.0, 1.0].map(|part| show(percentile(values, part)));
            format!("{low}-{high}")
        };
        let (other, ratio, range) = match self.constant {
            Some(constant) => (
                format!("= {}", self.unit.show(constant)),
                String::new(),
                range(&a, &|value| self.unit.show(value)),
            ),
            None => (
                self.unit.show(percentile(&b, 0.5)),
                format!("{:.2}", percentile(&ratios, 0.5)),
                range(&ratios, &|value| format!("{value:.2}")),
            ),
        };
        let median = self.unit.show(percentile(&a, 0.5));
        [
            self.name.clone(),
            median,
            other,
            ratio,
            range,
            goal,
            verdict.to_owned(),
        ]
    }

    fn judge(&self, a: &[f64], ratios: &[f64]) -> (String, &'static str) {
        let Some(target) = self.target else {
            return (String::new(), "");
        };
        // Of a constant, the product says more than the factor.
        let times = |comparison: &str, factor: f64| match self.constant {
            Some(constant) => format!("A {comparison} {}", self.unit.show(factor * constant)),
            None => format!("A/B {comparison} {factor}"),
        };
        let ratio = percentile(ratios, 0.5);
        let (goal, met) = match target {
            Target::RatioAtLeast(least) => (times(">=", least), ratio >= least),
            Target::RatioAtMost(most) => (times("<=", most), ratio <= most),
            Target::RatioBelow(limit) => (times("<", limit), ratio < limit),
            Target::RatioWithin(most) => {
                let goal = match self.constant {
                    Some(constant) => format!(
                        "A = {} +- {}",
                        self.unit.show(constant),
                        self.unit.show(most * constant)
                    ),
                    None => format!("A/B = 1 +- {most}"),
                };
                (goal, (ratio - 1.0).abs() <= most)
            }
            Target::NeverAbove(most) => (
                format!("A never > {}", self.unit.show(most)),
                percentile(a, 1.0) <= most,
            ),
        };
        (goal, if met { "pass" } else { "MISSED" })
    }
}

/// The value below which this part of the sorted values lies; the mean of the middle two where it falls
/// between them.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    assert!(!sorted.is_empty(), "nothing was measured");
    let place = part * (sorted.len() - 1) as f64;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    low + (high - low) * place.fract()
}

/// Prints the rows as one aligned table.
pub fn print(rows: &[Row]) {
    let head = ["A / B", "A", "B", "A/B", "range", "target", ""].map(str::to_owned);
    let lines: Vec<[String; 7]> = std::iter::once(head)
        .chain(rows.iter().map(Row::cells))
        .collect();
    let widths: [usize; 7] = std::array::from_fn(|column| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Numbers to the right, words to the left.
            let written = match column {
                1..=4 => write!(text, "{cell:>width$}  "),
                _ => write!(text, "{cell:<width$}  "),
            };
            written.unwrap();
        }
        println!("{}", text.trim_end());
    }
}
