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

/// Runs it and asserts what is found, written as `level check: words | other words`. If that is not good, all else is, and the exit status is that
/// of its level. If it is empty, all is good.
async fn expect(launch: Launch, expected: &str) -> Checked {
    let finished = launch.run().await;
    let checked = Checked(finished.stdout);
    assert_eq!(finished.stderr, "", "{}", checked.0);
    let (about, words) = expected.split_once(": ").unwrap_or_default();
    let (level, check) = about.rsplit_once(' ').unwrap_or_default();
    let status = match level {
        "bad" | "not tested" => 2,
        "warning" => 1,
        _ => 0,
    };
    let is_wrong = |(level, ..): &(&str, &str, &str)| *level != "good";
    let wrong = checked.findings().into_iter().filter(is_wrong).count();
    let found = (finished.status, wrong);
    let wanted = (Some(status), usize::from(status > 0));
    assert_eq!(found, wanted, "{expected}:\n{}", checked.0);
    if !expected.is_empty() {
        checked.assert(level, check, words);
    }
    checked
}

// === impl Checked ===

impl Checked {
    /// The findings, each as its level, what it is about, and the rest of the line.
    fn findings(&self) -> Vec<(&str, &str, &str)> {
        let levels = ["good", "not tested", "warning", "bad"];
        let lines = self.0.lines().filter_map(|line| {
            let begins = |level: &&str| line.starts_with(&format!("{level:10}  "));
            let level = levels.into_iter().find(begins)?;
            let (check, said) = line[12..].split_once(' ')?;
            Some((level, check, said.trim_start()))
        });
        lines.collect()
    }

    /// Asserts that the only line about a thing has this level and contains these words, separated by ` | `.
    #[track_caller]
    fn assert(&self, level: &str, check: &str, words: &str) {
        let mut found = self.findings();
        found.retain(|(_, about, _)| *about == check);
        let has_all = |said: &str| words.split(" | ").all(|words| said.contains(words));
        let is_so = matches!(found[..], [(one, _, said)] if one == level && has_all(said));
        assert!(is_so, "{level} {check}: {words} expected:\n{}", self.0);
    }
}
