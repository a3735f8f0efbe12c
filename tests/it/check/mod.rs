//! The command `check` of the built binary: each fault has a line with what to do, and nothing is changed.

mod assumptions;
mod collector;
mod pages;
mod port;
mod report;
mod service;
mod state;

use orgdata_exporter::simulator::{ClockSource, Config, Running};

use crate::support::binary::{KEY, Launch, launch};
use crate::support::service::spawn;

/// The directory of the test certificates.
pub(crate) const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");

/// What a run printed.
#[derive(Debug)]
struct Checked(String);

/// `check` with the simulator's key, any free port and a state file that does not exist.
fn check(base_url: &str) -> Launch {
    launch(&["check", "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_STATE_PATH", "state.db")
        .env("ORGDATA_API_BASE_URL", base_url)
        .env("ORGDATA_API_KEY", KEY)
}

/// A simulated organization with some history and tickets, in which nothing else happens.
fn organization() -> Config {
    Config {
        history: 50,
        tickets: 20,
        clock: ClockSource::Real,
        ..Config::quiet()
    }
}

async fn service() -> Running {
    spawn(organization()).await
}

/// Runs it and asserts that this is the only finding that is not good or open, and that the exit status is that of its level.
/// It is written as `level check: words | other words`; if empty, nothing is wrong.
async fn expect(launch: Launch, expected: &str) -> Checked {
    let finished = launch.run().await;
    let checked = Checked(finished.stdout);
    assert_eq!(finished.stderr, "", "{}", checked.0);
    let mut found = checked.findings();
    found.retain(|(level, ..)| !["good", "unknown"].contains(level));
    let status = match expected.split(' ').next() {
        Some("bad") => 2,
        Some("warning") => 1,
        _ => 0,
    };
    let count = usize::from(status > 0);
    assert_eq!(found.len(), count, "{expected}:\n{}", checked.0);
    assert_eq!(finished.status, Some(status), "{}", checked.0);
    if let [(level, check, said)] = found[..] {
        let said = format!("{level} {check}: {said}");
        for words in expected.split(" | ") {
            let (about, words) = words.split_once(": ").unwrap_or(("", words));
            let is_there = said.starts_with(about) && said.contains(words);
            assert!(is_there, "{words:?} is missing in {said}");
        }
    }
    checked
}

// === impl Checked ===

impl Checked {
    /// The findings, each as its level, what it is about, and the rest of the line.
    fn findings(&self) -> Vec<(&str, &str, &str)> {
        let words = |line| {
            let (level, rest) = str::split_once(line, ' ')?;
            let (check, said) = rest.trim_start().split_once(' ')?;
            let known = ["good", "unknown", "warning", "bad"].contains(&level);
            known.then(|| (level, check, said.trim_start()))
        };
        self.0.lines().filter_map(words).collect()
    }

    /// Asserts that the only line about a thing is good and contains these words.
    #[track_caller]
    fn assert_good(&self, check: &str, words: &str) {
        self.assert("good", check, words);
    }

    /// Asserts that the only line about a thing has this level and contains these words.
    #[track_caller]
    fn assert(&self, level: &str, check: &str, words: &str) {
        let mut found = self.findings();
        found.retain(|(_, about, _)| *about == check);
        let is_so = matches!(found[..], [(one, _, said)] if one == level && said.contains(words));
        assert!(is_so, "{level} {check}: {words} expected:\n{}", self.0);
    }
}
