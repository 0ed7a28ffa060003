//! What to measure, and how thoroughly: the command line.

/// How thoroughly to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// For figures.
    Full,
    /// For a smoke test: everything runs, nothing for long.
    Quick,
}

impl Effort {
    /// One of two amounts.
    pub fn of<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// The command line.
pub struct Plan {
    /// How thoroughly.
    pub effort: Effort,
    /// The selected subjects; empty for all.
    selected: Vec<String>,
}

impl Plan {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// How to call it, when an argument is neither an option nor one of `names`.
    pub fn from_arguments(
        arguments: impl Iterator<Item = String>,
        names: &[&str],
    ) -> Result<Self, String> {
        let mut plan = Self {
            effort: Effort::Full,
            selected: Vec::new(),
        };
        for argument in arguments {
            match argument.as_str() {
                "--quick" => plan.effort = Effort::Quick,
                // Added by `cargo bench`.
                "--bench" => {}
                name if names.contains(&name) => plan.selected.push(argument),
                other => {
                    return Err(format!(
                        "{other}: expected --quick or any of {}",
                        names.join(", ")
                    ));
                }
            }
        }
        Ok(plan)
    }

    /// Whether this subject is to be measured.
    pub fn includes(&self, name: &str) -> bool {
        self.selected.is_empty() || self.selected.iter().any(|selected| selected == name)
    }
}
