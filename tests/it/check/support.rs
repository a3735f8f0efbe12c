//! A run of `check`, read back line by line.

use orgdata_exporter::simulator::{ApiKey, ClockSource, Config};

use crate::support::binary::{Finished, KEY, Launch, launch};

/// A finding as it is expected: level, what it is about, words of what is said, words of what to do.
pub(crate) type Expected = (&'static str, &'static str, &'static [&'static str]);

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) status: Option<i32>,
    pub(crate) text: String,
}

/// `check` with the simulator's key, a state file that is not there, and any free port.
pub(crate) fn check(base_url: &str) -> Launch {
    launch(&["check"])
        .env("ORGDATA_WEB_LISTEN_ADDRESS", "127.0.0.1:0")
        .env("ORGDATA_STATE_PATH", "state.db")
        .env("ORGDATA_API_BASE_URL", base_url)
        .env("ORGDATA_API_KEY", KEY)
}

/// A simulated organization with some history and tickets, in which nothing happens meanwhile.
pub(crate) fn organization() -> Config {
    Config {
        history: 50,
        tickets: 20,
        clock: ClockSource::Real,
        keys: vec![ApiKey::full(KEY)],
        ..Config::quiet()
    }
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
    pub(crate) async fn of(launch: Launch) -> Self {
        launch.run().await.into()
    }

    /// The lines of findings, each as its level, what it is about, and the rest.
    pub(crate) fn findings(&self) -> Vec<(&str, &str, &str)> {
        let words = |line| {
            let (level, rest) = str::split_once(line, ' ')?;
            let (check, said) = rest.trim_start().split_once(' ')?;
            ["good", "warning", "bad"]
                .contains(&level)
                .then(|| (level, check, said.trim_start()))
        };
        self.text.lines().filter_map(words).collect()
    }

    /// The only line about a thing.
    #[track_caller]
    pub(crate) fn line(&self, check: &str) -> (&str, &str) {
        let found: Vec<_> = self
            .findings()
            .into_iter()
            .filter(|(_, about, _)| *about == check)
            .collect();
        let [(level, _, said)] = found[..] else {
            panic!("not one line about {check} in:\n{}", self.text)
        };
        (level, said)
    }

    /// These findings are all that is not good, and the status is that of the worst.
    #[track_caller]
    pub(crate) fn assert_only(&self, expected: &[Expected]) {
        let found: Vec<_> = self
            .findings()
            .into_iter()
            .filter(|(level, ..)| *level != "good")
            .collect();
        assert_eq!(
            found.len(),
            expected.len(),
            "{expected:?} expected of:\n{}",
            self.text
        );
        for (level, check, words) in expected {
            let (said_level, said) = self.line(check);
            assert_eq!(said_level, *level, "{check} in:\n{}", self.text);
            for word in *words {
                assert!(
                    said.contains(word),
                    "{word:?} is missing in {check}: {said}"
                );
            }
        }
        let worst = expected
            .iter()
            .map(|(level, ..)| if *level == "bad" { 2 } else { 1 })
            .max()
            .unwrap_or(0);
        assert_eq!(self.status, Some(worst), "{}", self.text);
    }
}
