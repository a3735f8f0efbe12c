//! The command `check` of the built binary: each fault has a line with what to do, and nothing is changed.

mod collector;
mod local;
mod report;
mod service;

use orgdata_exporter::simulator::{ClockSource, Config, Running, Simulator};

use crate::support::binary::{Finished, KEY, Launch, launch};

/// The directory of the test certificates.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");

/// What a run printed.
#[derive(Debug)]
struct Checked {
    status: Option<i32>,
    text: String,
}

/// `check` with the simulator's key, a state file that does not exist, and a free port.
fn check(base_url: &str) -> Launch {
    launch(&["check"])
        .env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0")
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
    Simulator::spawn(organization()).await.expect("a free port")
}

// === impl Checked ===

impl From<Finished> for Checked {
    fn from(finished: Finished) -> Self {
        assert_eq!(finished.stderr, "", "{}", finished.stdout);
        Self {
            status: finished.status,
            text: finished.stdout,
        }
    }
}

impl Checked {
    async fn of(launch: Launch) -> Self {
        launch.run().await.into()
    }

    /// The findings, each as its level, what it is about, and the rest of the line.
    fn findings(&self) -> Vec<(&str, &str, &str)> {
        let words = |line| {
            let (level, rest) = str::split_once(line, ' ')?;
            let (check, said) = rest.trim_start().split_once(' ')?;
            let known = ["good", "warning", "bad"].contains(&level);
            known.then(|| (level, check, said.trim_start()))
        };
        self.text.lines().filter_map(words).collect()
    }

    /// The level and the text of the only line about a thing.
    #[track_caller]
    fn line(&self, check: &str) -> (&str, &str) {
        let mut found = self.findings();
        found.retain(|(_, about, _)| *about == check);
        let [(level, _, said)] = found[..] else {
            panic!("not one line about {check} in:\n{}", self.text)
        };
        (level, said)
    }

    /// Asserts that these findings are all that is not good, and that the exit status is that of the worst. Each is
    /// written as `level check: words | other words`.
    #[track_caller]
    fn assert_only(&self, expected: &[&str]) {
        let mut found = self.findings();
        found.retain(|(level, ..)| *level != "good");
        assert_eq!(found.len(), expected.len(), "{expected:?}:\n{}", self.text);
        for expected in expected {
            let (finding, words) = expected.split_once(": ").expect("a colon");
            let (level, check) = finding.split_once(' ').expect("a level");
            let (found, said) = self.line(check);
            assert_eq!(found, level, "{check} in:\n{}", self.text);
            for words in words.split(" | ") {
                assert!(
                    said.contains(words),
                    "{words:?} is missing in {check}: {said}"
                );
            }
        }
        let bad = expected.iter().any(|expected| expected.starts_with("bad "));
        let status = if bad {
            2
        } else {
            i32::from(!expected.is_empty())
        };
        assert_eq!(self.status, Some(status), "{}", self.text);
    }

    #[track_caller]
    fn assert_good(&self, check: &str, words: &str) {
        let (level, said) = self.line(check);
        assert!(
            level == "good" && said.contains(words),
            "{words} expected of {check}:\n{}",
            self.text
        );
    }
}
