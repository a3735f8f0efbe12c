//! Signals: the first ends the exporter in order and within the grace, the second at once, and SIGHUP not at all.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orgdata_exporter::simulator::{Config, Simulator};

use crate::support::binary::{Exporter, exporter, until};
use crate::support::http_peer::{Peer, Reply, answer};

const UP: &str = "orgdata_up{loop=\"audit\"}";

/// An exporter with a record that its collector does not take.
async fn with_backlog(sim: &Simulator, base_url: &str, collector: &str, grace: &str) -> Exporter {
    let launch = exporter(base_url)
        .arg("--audit.start=oldest")
        .arg(&format!("--shutdown.grace={grace}"));
    let exporter = launch
        .arg("--otlp.protocol=http/protobuf")
        .arg(&format!("--otlp.endpoint={collector}"))
        .start();
    exporter.until_value(UP, 1.0).await;
    sim.add_events(3);
    exporter
        .until_value("orgdata_otlp_backlog_records", 3.0)
        .await;
    exporter
}

#[tokio::test]
async fn a_signal_ends_it_in_order() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    for signal in ["TERM", "INT"] {
        let mut exporter = exporter(&sim.base_url()).start();
        // As soon as it says that it listens, a signal is an orderly end.
        exporter.url().await;
        exporter.signal(signal).await;
        assert_eq!(
            exporter.ended().await,
            Some(0),
            "{signal}: {}",
            exporter.stderr().text()
        );
        exporter
            .stderr()
            .until("its last line", |line| {
                line.contains("stopped") && line.contains("unsent=0")
            })
            .await;
        assert_eq!(exporter.stdout().text(), "");
    }
}

#[tokio::test]
async fn a_service_that_hangs_does_not_keep_it() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let mut exporter = exporter(&peer.url()).start();
    until("both loops wait", async || {
        (peer.count() >= 2).then_some(())
    })
    .await;
    let started = Instant::now();
    assert_eq!(exporter.stop().await, Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_collector_that_is_away_costs_the_grace_and_no_more() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let mut exporter = with_backlog(&sim, &sim.base_url(), &peer.url(), "300ms").await;
    let started = Instant::now();
    assert_eq!(exporter.stop().await, Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    exporter
        .stderr()
        .until("what is left", |line| {
            line.contains("stopped") && line.contains("unsent=3")
        })
        .await;
}

#[tokio::test]
async fn a_trace_endpoint_that_is_away_keeps_it_neither_from_starting_nor_from_ending() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    join_all(["grpc", "http/protobuf"].map(async |protocol| {
        let launch =
            exporter(&sim.base_url()).env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &peer.url());
        let mut exporter = launch
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
            .start();
        exporter.until_value(UP, 1.0).await;
        let started = Instant::now();
        assert_eq!(
            exporter.stop().await,
            Some(0),
            "{}",
            exporter.stderr().text()
        );
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{protocol}: {:?}",
            started.elapsed()
        );
    }))
    .await;
}

#[tokio::test]
async fn failing_exports_of_spans_are_one_warning_without_passwords() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let refused = Peer::always(answer("403 Forbidden", &[], "")).await;
    let with_password = format!("http://me:hunter22@{}", refused.address());
    let cases = [
        ("grpc", refused.url()),
        ("http/protobuf", refused.url()),
        ("http/protobuf", with_password),
    ];
    join_all(cases.map(async |(protocol, endpoint)| {
        let exporter = exporter(&sim.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint)
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .start();
        let is_warning = |line: &str| line.contains("cannot export spans");
        exporter.stderr().until("a warning", is_warning).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let log = exporter.stderr().text();
        assert_eq!(
            log.lines().filter(|line| is_warning(line)).count(),
            1,
            "{log}"
        );
        assert!(!log.contains("hunter22"), "{log}");
    }))
    .await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let mut exporter = with_backlog(&sim, &sim.base_url(), &peer.url(), "10m").await;
    exporter.signal("TERM").await;
    exporter
        .stderr()
        .until("that it stops", |line| line.contains("stopping"))
        .await;
    assert!(exporter.runs());
    // So soon after the first it may be taken for an echo of that one: as a person would, it is sent again.
    until("the end", async || {
        exporter.signal_if_it_runs("INT").await;
        (!exporter.runs()).then_some(())
    })
    .await;
    assert_eq!(
        exporter.ended().await,
        Some(1),
        "{}",
        exporter.stderr().text()
    );
    exporter
        .stderr()
        .until("why", |line| line.contains("second signal"))
        .await;
}

#[tokio::test]
async fn a_signal_that_comes_twice_at_once_is_one() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let mut exporter = with_backlog(&sim, &sim.base_url(), &peer.url(), "700ms").await;
    exporter.signal("TERM").await;
    exporter.signal_if_it_runs("TERM").await;
    assert_eq!(
        exporter.ended().await,
        Some(0),
        "{}",
        exporter.stderr().text()
    );
}

#[tokio::test]
async fn a_hangup_does_not_end_it() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let mut exporter = exporter(&sim.base_url()).start();
    exporter.until_value(UP, 1.0).await;
    exporter.signal("HUP").await;
    exporter
        .stderr()
        .until("what a hangup means", |line| line.contains("SIGHUP"))
        .await;
    assert_eq!(exporter.get("/-/healthy").await.0, 200);
    assert_eq!(exporter.stop().await, Some(0));
}
