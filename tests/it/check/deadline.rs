//! How long it takes at most; this waits for most of its time, so it is among the first to begin.

use std::time::{Duration, Instant};

use super::support::{Checked, check};
use crate::support::http_peer::{Peer, Reply};

#[tokio::test]
async fn it_ends_in_time_whatever_hangs() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let started = Instant::now();
    // Longer than `check` waits by itself; the collector has its own.
    let launch = check(&peer.url())
        .arg("--api.timeout=10m")
        .arg(&format!("--otlp.endpoint={}", peer.url()));
    let checked = Checked::of(launch.arg("--otlp.protocol=http/protobuf")).await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    assert!(
        checked.line("service").1.contains("no answer within 10s"),
        "{}",
        checked.text
    );
    assert!(
        checked.line("collector").1.contains("no answer within 10s"),
        "{}",
        checked.text
    );
}
