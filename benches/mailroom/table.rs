//! The result: rows of ratios, and how they are printed.

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
    /// How likely, from 0 to 1.
    Probability,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond if value >= 10_000.0 => format!("{:.1}k/s", value / 1_000.0),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Probability => format!("{value:.3}"),
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
    /// The median ratio differs from 1 by no more than this.
    RatioWithin(f64),
    /// The median of A is at least this, in the row's unit.
    AtLeast(f64),
    /// The median of A is at most this, in the row's unit.
    AtMost(f64),
    /// A is at most this in every round, in the row's unit.
    NeverAbove(f64),
}

/// One comparison.
pub struct Row {
    name: String,
    unit: Unit,
    rounds: Vec<(f64, f64)>,
    target: Option<Target>,
}

impl Row {
    /// A comparison without rounds so far; the name says what A and B are.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            rounds: Vec::new(),
            target: None,
        }
    }

    /// The same with a target, or without one.
    pub fn aiming_at(self, target: Option<Target>) -> Self {
        Self { target, ..self }
    }

    /// Adds a round and reports it.
    pub fn add(&mut self, a: f64, b: f64) {
        eprintln!(
            "   {}: {}, {}: {:.3}",
            self.name,
            self.unit.show(a),
            self.unit.show(b),
            a / b
        );
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
        [
            self.name.clone(),
            self.unit.show(percentile(&a, 0.5)),
            self.unit.show(percentile(&b, 0.5)),
            format!("{:.2}", percentile(&ratios, 0.5)),
            format!(
                "{:.2}-{:.2}",
                percentile(&ratios, 0.0),
                percentile(&ratios, 1.0)
            ),
            goal,
            verdict.to_owned(),
        ]
    }

    fn judge(&self, a: &[f64], ratios: &[f64]) -> (String, &'static str) {
        let (goal, met) = match self.target {
            None => return (String::new(), ""),
            Some(Target::RatioAtLeast(least)) => {
                (format!("A/B >= {least}"), percentile(ratios, 0.5) >= least)
            }
            Some(Target::RatioAtMost(most)) => {
                (format!("A/B <= {most}"), percentile(ratios, 0.5) <= most)
            }
            Some(Target::RatioWithin(most)) => (
                format!("A/B = 1 +- {most}"),
                (percentile(ratios, 0.5) - 1.0).abs() <= most,
            ),
            Some(Target::AtLeast(least)) => (
                format!("A >= {}", self.unit.show(least)),
                percentile(a, 0.5) >= least,
            ),
            Some(Target::AtMost(most)) => (
                format!("A <= {}", self.unit.show(most)),
                percentile(a, 0.5) <= most,
            ),
            Some(Target::NeverAbove(most)) => (
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
