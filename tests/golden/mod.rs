//! Runs the server's own pg_regress or pg_isolation_regress on a directory of this checkout.
//!
//! The programs run as the server's user, who may be unable to read the checkout, so they get a copy of it. A run
//! passes only if every input has an expected file, every expected file has an input, and the program itself reports
//! that it passed as many tests as there are files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::{Cluster, ask_pg_config, bin_directory};

/// One of the two programs, and its files.
pub struct Suite {
    /// Its path below `pgxs/src/test` of the server's library directory.
    pub program: &'static str,
    /// The directory below `tests` with the directory of the inputs and `expected`.
    pub directory: &'static str,
    /// The directory of the inputs.
    pub inputs: &'static str,
    /// Their extension.
    pub extension: &'static str,
    /// The number of groups into which the tests are divided; they run in parallel, each with its own cluster.
    pub groups: usize,
    /// Statements that are executed in the database first; if there are any, the program creates no database.
    pub prepare: Option<&'static str>,
}

impl Suite {
    /// Runs all tests on clusters without the worker, where nothing happens but what the files do.
    pub fn run(&self) {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(self.directory);
        let tests = stems(&checkout.join(self.inputs), self.extension);
        let expected = stems(&checkout.join("expected"), "out");
        assert!(
            !tests.is_empty(),
            "there are no tests in {}",
            checkout.display()
        );
        assert_eq!(
            tests, expected,
            "inputs (left) and expected files (right) of {}",
            self.directory
        );

        let kept = self.kept();
        let _ = std::fs::remove_dir_all(&kept);
        let failures: Vec<String> = std::thread::scope(|scope| {
            // Tests with similar names go to different groups.
            let groups: Vec<_> = (0..self.groups)
                .map(|group| {
                    let tests: Vec<&str> = tests
                        .iter()
                        .skip(group)
                        .step_by(self.groups)
                        .map(String::as_str)
                        .collect();
                    let checkout = &checkout;
                    scope.spawn(move || self.run_group(checkout, &tests))
                })
                .collect();
            groups
                .into_iter()
                .filter_map(|group| group.join().unwrap().err())
                .collect()
        });
        assert!(
            failures.is_empty(),
            "{}\nWhat came out is in {}.",
            failures.join("\n"),
            kept.display()
        );
    }

    /// Runs some of the tests on their own cluster.
    fn run_group(&self, checkout: &Path, tests: &[&str]) -> Result<(), String> {
        let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
        let copy = cluster.scratch();
        for part in [self.inputs, "expected"] {
            copy_files(&checkout.join(part), &copy.join(part));
        }
        let program = ask_pg_config("MAILROOM_PG_CONFIG", "--pkglibdir")
            .join("pgxs/src/test")
            .join(self.program);
        assert!(
            program.exists(),
            "the server came without {}",
            program.display()
        );
        let mut run = cluster.as_server_user(Command::new(program));
        if let Some(statements) = self.prepare {
            cluster
                .create_database("golden")
                .batch_execute(statements)
                .unwrap();
            run.args(["--use-existing", "--dbname=golden"]);
        }
        // The directories of inputs, expected files and results are below the current one by default; before PostgreSQL
        // 16 there is no option for the second.
        run.current_dir(&copy)
            .arg(format!(
                "--bindir={}",
                bin_directory("MAILROOM_PG_CONFIG").display()
            ))
            .args(tests)
            // In seconds, and much shorter than the default of pg_isolation_regress.
            .env("PGISOLATIONTIMEOUT", "60");
        let output = run.output().unwrap();

        let report = String::from_utf8_lossy(&output.stdout);
        let passed = report.contains(&format!("All {} tests passed", tests.len()));
        if output.status.success() && passed {
            return Ok(());
        }
        if copy.join("results").is_dir() {
            copy_files(&copy.join("results"), &self.kept());
        }
        let diffs = std::fs::read_to_string(copy.join("regression.diffs")).unwrap_or_default();
        Err(format!(
            "{}\n{report}\n{}\n{diffs}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
        ))
    }

    /// The directory that keeps the results of a failed run after the clusters are removed.
    fn kept(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.directory)
    }
}

/// The names, without the extension, of the files in a directory, which must all have this extension.
fn stems(directory: &Path, extension: &str) -> BTreeSet<String> {
    std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(
                path.extension().and_then(|found| found.to_str()),
                Some(extension),
                "what is {} doing here?",
                path.display()
            );
            path.file_stem().unwrap().to_str().unwrap().to_owned()
        })
        .collect()
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
