//! A metric is there from the start if its labels are known, and moves when what it describes happens: in the built binary, beside a service
//! and a collector that misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use orgdata_exporter::simulator::{
    Endpoint, Fault, FaultKind, Fields, RetryAfter, Running, TotalCount,
};

use crate::support::binary::{Exporter, Launch, Scrape, exporter, until_ok};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::service::organization;

/// Returns what each family shows, by its name.
async fn look(exporter: &Exporter) -> BTreeMap<String, String> {
    let scrape = exporter.metrics().await;
    let families = scrape.split("# HELP orgdata_").skip(1);
    let families = families.filter_map(|family| family.split_once(' '));
    let own = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    families.map(own).collect()
}

/// Does something, every few seconds, until all of these metrics, separated by spaces, show something else than before.
async fn moves(exporter: &Exporter, names: &str, act: impl Fn()) {
    let before = look(exporter).await;
    let mut waiting: BTreeSet<&str> = names.split_whitespace().collect();
    let mut looks = 0;
    until_ok(async || {
        if looks % 200 == 0 {
            act();
        }
        looks += 1;
        let now = look(exporter).await;
        waiting.retain(|name| before.get(*name) == now.get(*name));
        let left = || format!("{names} should move, and {waiting:?} did not");
        waiting.is_empty().then_some(()).ok_or_else(left)
    })
    .await;
}

#[tokio::test]
async fn what_has_known_labels_is_there_from_the_start() {
    // No response of the service has come yet.
    let simulator = organization(3, 0).await;
    simulator.fault(Fault::new(FaultKind::Hang));
    let peer = Peer::http(1 << 20).await;
    let launch = beside(&simulator).otlp("http/protobuf", &peer.url());
    let scrape = launch.listening().await.scrape().await;
    for name in [
        "orgdata_audit_gaps_total",
        "orgdata_api_request_failures_total{endpoint=\"tickets\",reason=\"timeout\"}",
        "orgdata_otlp_records_rejected_total",
        "orgdata_dead_letters_stored",
        "orgdata_state_commit_failures_total",
    ] {
        assert_eq!(scrape.value(name), Some(0.0), "{name}");
    }
    simulator.clear_faults();
}

fn beside(simulator: &Running) -> Launch {
    exporter(&simulator.base_url())
        .flag("--metrics.max-actors", "3")
        .flag("--audit.reread-interval", "500ms")
}

#[tokio::test]
async fn what_the_api_does_moves_its_metrics() {
    let simulator = organization(20, 60).await;
    let exporter = beside(&simulator).listening().await;
    let tickets = |scrape: &Scrape| scrape.has("orgdata_deals_with_open_tickets");
    exporter.until("tickets", tickets).await;
    exporter.synced().await;
    // Each time at another moment, so that none is behind another.
    let events = |count| {
        simulator.advance(Duration::from_secs(1));
        simulator.add_events(count);
    };
    // A fault strikes so many requests, and then come so many events.
    let fault = |times, kind, count| {
        simulator.clear_faults();
        simulator.fault(Fault::new(kind).on(Endpoint::Audit).times(times));
        events(count);
    };
    let unreadable = || {
        let fields = Fields::new().unchecked().with("createdAt", "no time");
        simulator.add_ticket(fields).unwrap();
    };
    let steps: [(&dyn Fn(), &str); 8] = [
        (
            &|| events(50),
            "audit_events_total audit_event_delay_seconds audit_events_other_actor_total audit_newest_event_timestamp_seconds
            api_requests_total api_request_duration_seconds api_response_bytes_total last_success_timestamp_seconds state_commits_total",
        ),
        (
            &|| simulator.add_late(3, Duration::from_secs(30)),
            "audit_events_late_total",
        ),
        (
            &|| fault(9, FaultKind::Duplicate, 5),
            "audit_entries_repeated_total",
        ),
        (
            &|| fault(1, FaultKind::TooManyRequests(RetryAfter::Seconds(1)), 0),
            "api_throttled_seconds_total",
        ),
        (
            // The client sends each of three requests four times.
            &|| fault(12, FaultKind::ExpiredCursor(StatusCode::BAD_GATEWAY), 1000),
            "audit_sweeps_cut_total audit_behind_since_timestamp_seconds api_request_failures_total",
        ),
        (
            &unreadable,
            "tickets_malformed tickets_snapshot_timestamp_seconds tickets_snapshot_duration_seconds",
        ),
        (
            &|| simulator.clear_tickets(),
            "tickets tickets_deal_amount open_tickets open_tickets_deal_amount open_tickets_overdue open_tickets_older_than
            deals_with_open_tickets open_tickets_oldest_created_timestamp_seconds tickets_opened_within tickets_closed_within
            tickets_time_to_close_seconds",
        ),
        (
            &|| simulator.change_readings(|it| it.total_count = TotalCount::Off(3)),
            "tickets_snapshot_consistent tickets_snapshot_retries_total",
        ),
    ];
    for (happens, names) in steps {
        moves(&exporter, names, happens).await;
    }
}

#[tokio::test]
async fn what_the_collector_does_moves_its_metrics() {
    let simulator = organization(3, 0).await;
    let peer = Peer::http(1 << 20).await;
    let launch = beside(&simulator).otlp("http/protobuf", &peer.url());
    let exporter = launch.on_disk().listening().await;
    exporter.synced().await;
    let names = "otlp_records_sent_total otlp_requests_total state_size_bytes otlp_acknowledgement_delay_seconds";
    moves(&exporter, names, || simulator.add_events(3000)).await;
    exporter.settled(3000).await;
    let rejected = || {
        peer.reply(Reply::Partial(1, "no"));
        simulator.add_events(2);
    };
    let names = "otlp_records_rejected_total dead_letters_stored dead_letters_total";
    moves(&exporter, names, rejected).await;
    exporter.settled(3002).await;
    let unavailable = || {
        (0..3).for_each(|_| peer.reply(Reply::Http(503, "text/plain", "away", None)));
        simulator.add_events(2);
    };
    let names = "otlp_request_failures_total otlp_backlog_records otlp_oldest_unsent_timestamp_seconds otlp_delivered_through_timestamp_seconds";
    moves(&exporter, names, unavailable).await;
}

#[tokio::test]
async fn a_filter_that_the_api_ignores_is_noticed_and_nothing_is_taken() {
    let simulator = organization(20, 0).await;
    let peer = Peer::http(1 << 20).await;
    // The service ignores a deal that does not exist.
    let setup = beside(&simulator)
        .otlp("http/protobuf", &peer.url())
        .flag("--audit.deal-ids", "99999999");
    let exporter = setup.listening().await;
    exporter.synced().await;
    let names = "audit_entries_filtered_total api_contract_violations_total";
    moves(&exporter, names, || simulator.add_events(20)).await;
    assert_eq!(exporter.sum("orgdata_audit_events_total").await, 0.0);
    assert!(peer.taken_ids().is_empty());
    exporter
        .logs("level=warn | does not match --audit.activity-types")
        .await;
}
