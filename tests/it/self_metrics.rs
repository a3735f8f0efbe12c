//! A metric is there from the start if its labels are known, and moves when what it describes happens: in the built binary, beside a service
//! and a collector that misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use orgdata_exporter::simulator::{
    Endpoint, Fault, FaultKind, Fields, RetryAfter, Running, TotalCount,
};

use crate::support::binary::{Exporter, Launch, Scrape, exporter};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::service::organization;

/// Returns what each family shows, by its name.
async fn look(exporter: &Exporter) -> BTreeMap<String, String> {
    let scrape = exporter.metrics().await;
    let families = scrape.split("# HELP ").skip(1);
    let families = families.filter_map(|family| family.split_once(' '));
    let own = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    families.map(own).collect()
}

/// Does something, every few seconds, until all of these metrics, separated by spaces, show something else than before.
async fn moves(exporter: &Exporter, names: &str, act: impl Fn()) {
    let before = look(exporter).await;
    let mut waiting: BTreeSet<&str> = names.split_whitespace().collect();
    for attempt in 0..4_800 {
        if attempt % 200 == 0 {
            act();
        }
        let now = look(exporter).await;
        waiting.retain(|name| before.get(*name) == now.get(*name));
        if waiting.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{names} should move, and {waiting:?} did not");
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
        "orgdata_audit_events_late_total",
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
    let later = |seconds| simulator.advance(Duration::from_secs(seconds));
    // Each time at another moment, so that none is behind another.
    let events = |count| {
        later(1);
        simulator.add_events(count);
    };

    // A fault strikes so many requests, and then come so many events.
    let fault = |times, kind, count| {
        simulator.clear_faults();
        simulator.fault(Fault::new(kind).on(Endpoint::Audit).times(times));
        events(count);
    };
    let names = "orgdata_audit_events_total orgdata_audit_event_delay_seconds orgdata_audit_events_other_actor_total
        orgdata_audit_newest_event_timestamp_seconds orgdata_api_requests_total orgdata_api_request_duration_seconds
        orgdata_api_response_bytes_total orgdata_last_success_timestamp_seconds orgdata_state_commits_total";
    later(59);
    moves(&exporter, names, || events(50)).await;
    let scrape = exporter.metrics().await;
    let actor = scrape.split("orgdata_audit_actor_info{actor=\"").nth(1);
    let actor: i64 = actor.unwrap().split('"').next().unwrap().parse().unwrap();
    let renamed = serde_json::json!({ "id": 1, "firstName": "Renamed" });
    let renamed = Fields::new().with("actorUser", renamed);
    let renamed = renamed.with("actorUserId", actor);
    let untyped = Fields::new().with("type", serde_json::Value::Null);
    let entry = |fields: &Fields| {
        later(1);
        simulator.add_entry(fields).unwrap();
    };
    let unreadable = || {
        let fields = Fields::new().unchecked().with("createdAt", "no time");
        simulator.add_ticket(fields).unwrap();
    };
    let lost = || {
        // Within a minute of the last poll nothing can have been lost.
        later(120);
        events(1000);
        simulator.retain(100);
        simulator.clear_faults();
    };
    let miscounted = || simulator.change_readings(|it| it.total_count = TotalCount::Off(3));
    let late = || simulator.add_late(3, Duration::from_secs(30));
    let entries = "orgdata_audit_entries_malformed_total orgdata_dead_letters_total
        orgdata_dead_letters_stored";
    let snapshot = "orgdata_tickets_malformed orgdata_tickets_snapshot_timestamp_seconds
        orgdata_tickets_snapshot_duration_seconds";
    let tickets = "orgdata_tickets orgdata_tickets_deal_amount orgdata_open_tickets orgdata_open_tickets_deal_amount
        orgdata_open_tickets_overdue orgdata_open_tickets_older_than orgdata_deals_with_open_tickets
        orgdata_open_tickets_oldest_created_timestamp_seconds
        orgdata_tickets_opened_within orgdata_tickets_closed_within orgdata_tickets_time_to_close_seconds";
    let retries = "orgdata_tickets_snapshot_consistent orgdata_tickets_snapshot_retries_total";
    let failures = "orgdata_up orgdata_last_failure_info orgdata_api_request_failures_total";
    // What happens, and what it moves.
    let duplicated = || fault(9, FaultKind::Duplicate, 5);
    let limited = || fault(1, FaultKind::TooManyRequests(RetryAfter::Seconds(1)), 0);
    let broken = || fault(u64::MAX, FaultKind::Status(StatusCode::BAD_GATEWAY), 0);
    // The client sends each of three requests four times.
    let cut = || fault(12, FaultKind::ExpiredCursor(StatusCode::BAD_GATEWAY), 1000);
    let organization = || {
        simulator.rename("New Name");
        events(1);
    };
    let steps: [(&dyn Fn(), &str); 12] = [
        (&organization, "orgdata_organization_info"),
        (&|| entry(&renamed), "orgdata_audit_actor_info"),
        (&late, "orgdata_audit_events_late_total"),
        (&duplicated, "orgdata_audit_entries_repeated_total"),
        (&|| entry(&untyped), entries),
        (&limited, "orgdata_api_throttled_seconds_total"),
        (&broken, failures),
        (&lost, "orgdata_audit_gaps_total"),
        (
            &cut,
            "orgdata_audit_sweeps_cut_total orgdata_audit_behind_since_timestamp_seconds",
        ),
        (&unreadable, snapshot),
        (&|| simulator.clear_tickets(), tickets),
        (&miscounted, retries),
    ];
    for (happens, names) in steps {
        moves(&exporter, names, happens).await;
    }
    let names = exporter.scrape().await;
    let names = names.series("orgdata_organization_info");
    let names: Vec<String> = names.map(|(labels, _)| labels[1].clone()).collect();
    assert_eq!(names, ["New Name"], "the old one is gone");
}

#[tokio::test]
async fn what_the_collector_does_moves_its_metrics() {
    let simulator = organization(3, 0).await;
    let peer = Peer::http(1 << 20).await;
    let launch = beside(&simulator).otlp("http/protobuf", &peer.url());
    let exporter = launch.on_disk().listening().await;
    exporter.synced().await;
    let names =
        "orgdata_otlp_records_sent_total orgdata_otlp_requests_total orgdata_state_size_bytes
        orgdata_otlp_acknowledgement_delay_seconds";
    moves(&exporter, names, || simulator.add_events(3000)).await;
    exporter.settled(3000).await;
    let rejected = || {
        peer.reply(Reply::Partial(1, "no"));
        simulator.add_events(2);
    };
    let names = "orgdata_otlp_records_rejected_total orgdata_dead_letters_stored";
    moves(&exporter, names, rejected).await;
    exporter.settled(3002).await;
    let away = || {
        (0..3).for_each(|_| peer.reply(Reply::Http(503, "text/plain", "away", None)));
        simulator.add_events(2);
    };
    let names = "orgdata_otlp_request_failures_total orgdata_otlp_backlog_records
        orgdata_otlp_oldest_unsent_timestamp_seconds
        orgdata_otlp_delivered_through_timestamp_seconds";
    moves(&exporter, names, away).await;
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
    let names = "orgdata_audit_entries_filtered_total orgdata_api_contract_violations_total";
    moves(&exporter, names, || simulator.add_events(20)).await;
    let scrape = exporter.scrape().await;
    for taken in [
        "audit_events_total",
        "otlp_backlog_records",
        "otlp_records_sent_total",
    ] {
        assert_eq!(scrape.sum(&format!("orgdata_{taken}")), 0.0, "{taken}");
    }
    exporter
        .logs("level=warn | outside of --audit.activity-types")
        .await;
}
