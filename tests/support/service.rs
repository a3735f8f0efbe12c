//! Simulated organizations in which nothing happens but what the test does.

use orgdata_simulator::{Config, Readings, Running, Simulator};

/// Starts one with a past and some tickets.
pub(crate) async fn organization(history: u64, tickets: u64) -> Running {
    let quiet = Config::quiet();
    spawn(Config {
        history,
        tickets,
        ..quiet
    })
    .await
}

pub(crate) async fn spawn(config: Config) -> Running {
    Simulator::spawn(config).await.unwrap()
}

/// Returns the default readings of the specification after a change.
pub(crate) fn readings(change: impl FnOnce(&mut Readings)) -> Readings {
    let mut readings = Readings::default();
    change(&mut readings);
    readings
}
