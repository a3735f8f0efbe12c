//! A pause that the API asks for: no request is tried meanwhile, and a line names one time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use orgdata_exporter::app::scan_tickets;
use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::{Health, Loop};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::captured::Captured;
use crate::support::settings::{in_process, ledger, tail};
use crate::tickets::support::settings as of_scans;

/// Both loops of an API that always answers this, until this is dropped.
struct Loops {
    metrics: Metrics,
    requests: Arc<Mutex<Vec<Instant>>>,
    _end: DropGuard,
}

fn run(status: u16, retry_after: u64) -> Loops {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let client = in_process(Duration::from_secs(30), move |_| {
        seen.lock().unwrap().push(Instant::now());
        let response = http::Response::builder().status(status);
        let response = response.header("retry-after", retry_after);
        let response = response.body(r#"{"message":"Later"}"#.into());
        async { response.ok() }
    });
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let end = shutdown.clone().drop_guard();
    let tail = Tail::new(
        client.clone(),
        ledger.clone(),
        state,
        metrics.clone(),
        tail(1000),
    );
    tokio::spawn(tail.unwrap().run(health.clone(), shutdown.clone()));
    let scans = scan_tickets(
        client,
        of_scans(10),
        ledger,
        metrics.clone(),
        health,
        shutdown,
    );
    tokio::spawn(scans);
    Loops {
        metrics,
        requests,
        _end: end,
    }
}

/// Returns the times in a line, such as `30s`.
fn times(line: &str) -> Vec<&str> {
    let parts = line.split(|c: char| !c.is_ascii_alphanumeric());
    let is_time = |part: &&str| {
        let digits = part.trim_end_matches(['s', 'm', 'h']);
        digits.len() + 1 == part.len() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    parts.filter(is_time).collect()
}

#[tokio::test(start_paused = true)]
async fn a_line_names_one_time_and_the_next_request_is_then() {
    for (status, pause) in [(503, 30), (429, 30), (429, 600), (401, 600), (503, 5)] {
        let log = Captured::begin_at(tracing::Level::INFO);
        let begun = Instant::now();
        let loops = run(status, pause);
        sleep(Duration::from_secs(1900)).await;
        for line in log.lines() {
            let line = line.split_once(" WARN ").map_or(&*line, |(_, rest)| rest);
            assert_eq!(times(line).len(), 1, "{line}");
        }
        assert!(!log.lines().is_empty());
        let gaps: Vec<Duration> = {
            let requests = loops.requests.lock().unwrap();
            let times: Vec<Duration> = requests.iter().map(|at| *at - begun).collect();
            times.windows(3).map(|three| three[2] - three[0]).collect()
        };
        // Two loops.
        let least = Duration::from_secs(pause);
        assert!(
            gaps.iter().all(|gap| *gap >= least),
            "{status}, {pause}: {gaps:?}"
        );
        // A rate limit may be that of the key, so the other loop has to wait too.
        if status != 429 {
            let asked = log.count("asked for a pause");
            assert_eq!(asked, 0, "nothing is tried meanwhile: {:?}", log.lines());
        }
    }
}

/// The alert about the key reads it.
#[tokio::test(start_paused = true)]
async fn the_reason_of_a_failure_stays_while_the_api_wants_to_be_left_alone() {
    let loops = run(401, 3600);
    for _ in 0..100 {
        sleep(Duration::from_secs(60)).await;
        for of in [Loop::Audit, Loop::Tickets] {
            let failure = loops.metrics.loops.state(of).last_failure.unwrap();
            assert_eq!(failure.reason, "unauthorized", "{of:?}");
        }
    }
}
