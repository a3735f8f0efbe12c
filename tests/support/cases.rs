//! Random cases: always the same ones unless `PROPTEST_CASES` says how many others are drawn, so that a change which fails is the
//! change's own doing.

use std::panic::AssertUnwindSafe;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestRunner};

/// Where the same cases begin; any number would do.
const SEED: u64 = 1;

/// Puts cases to a test that panics where one of them fails, and shrinks the first that does.
///
/// # Panics
/// With the smallest case that fails.
pub(crate) fn check<S: Strategy>(
    name: &'static str,
    cases: u32,
    strategy: &S,
    test: impl Fn(&S::Value),
) {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    let config = Config {
        cases: asked.unwrap_or(cases),
        rng_seed: if asked.is_some() {
            RngSeed::Random
        } else {
            RngSeed::Fixed(SEED)
        },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/cases.txt",
        ))),
        max_shrink_iters: 3000,
        test_name: Some(name),
        source_file: Some(file!()),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(strategy, |case| {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| test(&case)));
        caught.map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            TestCaseError::fail(text.unwrap_or_default())
        })
    });
    if let Err(error) = result {
        panic!("{name}: {error}");
    }
}
