//! Random cases: the same ones in each run, unless `PROPTEST_CASES` says how many others are drawn.

use std::panic::AssertUnwindSafe;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestRunner};

/// Where the same cases begin; any number would do.
const SEED: u64 = 1;

/// Runs a test, which panics if a case fails, with random cases.
pub(crate) fn check<S: Strategy>(
    name: &'static str,
    cases: u32,
    strategy: &S,
    test: impl Fn(&S::Value),
) {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    let regressions = FileFailurePersistence::Direct("proptest-regressions/cases.txt");
    let config = Config {
        cases: asked.unwrap_or(cases),
        rng_seed: asked.map_or(RngSeed::Fixed(SEED), |_| RngSeed::Random),
        failure_persistence: Some(Box::new(regressions)),
        max_shrink_iters: 3000,
        test_name: Some(name),
        source_file: Some(file!()),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(strategy, |case| {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| test(&case)));
        caught.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            TestCaseError::fail(text.unwrap_or_default())
        })
    });
    result.unwrap_or_else(|error| panic!("{name}: {error}"));
}
