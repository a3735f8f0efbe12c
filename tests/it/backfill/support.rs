//! A world with a past, and a backfill of it.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::simulator::{Config, Running, Simulator};

use crate::support::binary::{KEY, Launch, exporter, launch};
use crate::support::collector_peer::Peer;

/// A week of history that ended five hours ago: Prometheus has written all of that time away. Nothing happens but what the test does.
pub(crate) async fn world(history: u64) -> Running {
    world_of(Config {
        history,
        rate: 0.0,
        tickets: 0,
        ticket_change_rate: 0.0,
        ..Config::default()
    })
    .await
}

pub(crate) async fn world_of(config: Config) -> Running {
    let start = Timestamp::now() - jiff::SignedDuration::from_hours(5);
    // In whole milliseconds, as the service's times are.
    let start = Timestamp::from_millisecond(start.as_millisecond()).expect("in range");
    let clock = orgdata_exporter::simulator::ClockSource::Manual(start);
    Simulator::spawn(Config { clock, ..config })
        .await
        .expect("a free port")
}

/// A backfill, as quick as it can be.
pub(crate) fn backfill(simulator: &Running, arguments: &[&str]) -> Launch {
    launch(&["backfill"])
        .args(arguments)
        .env("ORGDATA_API_MAX_REQUESTS_PER_SECOND", "1000")
        .env("ORGDATA_API_BASE_URL", &simulator.base_url())
        .env("ORGDATA_API_KEY", KEY)
        .env("ORGDATA_LOG_LEVEL", "warn")
}

/// A backfill to a collector.
pub(crate) fn to_otlp(
    simulator: &Running,
    peer: &Peer,
    progress: &Path,
    arguments: &[&str],
) -> Launch {
    backfill(simulator, &["--to", "otlp"])
        .args(arguments)
        .arg(&format!("--progress={}", progress.display()))
        .arg(&format!("--otlp.endpoint=http://{}", peer.address))
        .arg("--otlp.protocol=grpc")
}

/// A backfill into a file.
pub(crate) fn to_file(simulator: &Running, file: &Path, arguments: &[&str]) -> Launch {
    backfill(
        simulator,
        &["--to", "openmetrics", &file.display().to_string()],
    )
    .args(arguments)
}

/// An exporter with a state file.
pub(crate) fn live(simulator: &Running, state: &Path) -> Launch {
    exporter(&simulator.base_url())
        .without_env("ORGDATA_STATE_PATH")
        .arg(&format!("--state.path={}", state.display()))
}

/// The ids of what the service has, oldest first, as far as it is wanted.
pub(crate) fn ids(simulator: &Running, wanted: impl Fn(Timestamp) -> bool) -> Vec<String> {
    simulator
        .simulator()
        .entries()
        .filter(|entry| wanted(entry.created_at))
        .map(|entry| entry.id)
        .collect()
}

pub(crate) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}
