//! What is left out: activity types, and users.

use orgdata_simulator::{Fields, Running};
use serde_json::json;

use crate::support::binary::{Scrape, exporter};
use crate::support::collector_peer::Peer;
use crate::support::service::organization;

fn add(api: &Running, activity_type: &str, actor: u64) -> String {
    let user = json!({"id": actor, "firstName": "Marker-First", "lastName": "Marker-Last", "profileImageUrl": "https://marker.example/p.png"});
    let mut entry = Fields::new().unchecked().with("type", activity_type);
    for name in ["actorUser", "targetUser", "modifiedTargetUser"] {
        entry = entry.with(name, user.clone());
        entry = entry.with(&format!("{name}Id"), actor);
    }
    api.simulator().add_entry(&entry).unwrap()
}

#[tokio::test]
async fn excluded_types_are_known_but_not_counted_or_not_sent() {
    let (api, peer) = (organization(5, 0).await, Peer::http(1 << 20).await);
    let launch = exporter(&api.base_url())
        .otlp("http/protobuf", &peer.url())
        .flag("--audit.reread-interval", "200ms")
        .flag(
            "--metrics.exclude-activity-types",
            "DOCUMENT_VIEWED, DOCUMENT_*ED",
        )
        .flag("--otlp.exclude-activity-types", "TASK_UPDATED, MEETING_*");
    let exporter = launch.start();
    exporter
        .logs("not_counted=DOCUMENT_VIEWED,DOCUMENT_*ED not_sent=TASK_UPDATED,MEETING_*")
        .await;
    exporter.logs("first sync is done").await;
    let sent = ["DOCUMENT_VIEWED", "DEAL_CREATED", "DOCUMENT_ADDED"].map(|kind| add(&api, kind, 1));
    for kind in ["TASK_UPDATED", "MEETING_HELD", "DEAL_CREATED"] {
        add(&api, kind, 2);
    }
    let is_done = |scrape: &Scrape| {
        scrape.sum("orgdata_audit_entries_excluded_total") == 4.0
            && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
    };
    exporter.until("all are known", is_done).await;
    // Re-reads meet them again.
    let requests = || api.simulator().requests().audit;
    let before = requests();
    let more = |_: &Scrape| requests() > before + 10;
    exporter.until("ten more requests", more).await;
    let scrape = exporter.until("the same", is_done).await;
    assert_eq!(scrape.sum("orgdata_audit_events_total"), 4.0);
    assert_eq!(scrape.sum("orgdata_audit_events_late_total"), 0.0);
    let taken = peer.taken_ids();
    assert_eq!((taken.len(), &taken[..3]), (4, &sent[..]));
}

#[tokio::test]
async fn no_byte_that_leaves_tells_a_user_unless_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("hash-key");
    std::fs::write(&key, "a secret of enough bytes").unwrap();
    for (mode, hashes) in [("hash", 1), ("none", 0)] {
        let (api, peer) = (organization(5, 0).await, Peer::http(1 << 20).await);
        let launch = exporter(&api.base_url())
            .otlp("http/protobuf", &peer.url())
            .flag("--metrics.actor-label", "hash")
            .flag("--metrics.hash-key-file", &key.display().to_string())
            .flag("--otlp.actor", mode);
        let exporter = launch.start();
        exporter.logs("first sync is done").await;
        let id = add(&api, "DEAL_CREATED", 987_654_321);
        let is_sent = |scrape: &Scrape| {
            scrape.value("orgdata_otlp_records_sent_total") == Some(1.0)
                && scrape.sum("orgdata_audit_events_total") == 1.0
        };
        let scrape = exporter.until("it is sent", is_sent).await;
        let last = format!("{:?}", peer.script.last.lock().unwrap());
        assert!(last.contains(&id) && peer.taken_ids().contains(&id));
        for secret in "Marker marker.example 987654321 user.id user.full_name".split(' ') {
            assert!(!last.contains(secret), "{mode}: {secret}");
        }
        assert_eq!(last.matches("user.hash").count(), hashes, "{mode}");
        let events = scrape.events();
        let label = &events.keys().next().unwrap()[1];
        assert_eq!(
            last.contains(label.as_str()),
            hashes == 1,
            "{mode}: {label}"
        );
    }
}
