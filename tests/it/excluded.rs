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
    let exporter = exporter(&api.base_url())
        .otlp("http/protobuf", &peer.url())
        .flag("--audit.reread-interval", "200ms")
        .arg("--metrics.exclude-activity-types=DOCUMENT_VIEWED, DOCUMENT_*ED")
        .arg("--otlp.exclude-activity-types=TASK_UPDATED, MEETING_*")
        .start();
    let words = "not_counted=DOCUMENT_VIEWED,DOCUMENT_*ED not_sent=TASK_UPDATED,MEETING_*";
    exporter.logs(words).await;
    exporter.synced().await;
    let sent = ["DOCUMENT_VIEWED", "DOCUMENT_ADDED", "DEAL_CREATED"].map(|kind| add(&api, kind, 1));
    for kind in ["TASK_UPDATED", "MEETING_HELD"] {
        add(&api, kind, 2);
    }
    let excluded = "orgdata_audit_entries_excluded_total";
    let all = |scrape: &Scrape| scrape.sum(excluded) == 4.0;
    exporter.until("all are known", all).await;
    // Re-reads meet them again.
    let requests = || api.simulator().requests().audit;
    let before = requests();
    let more = |_: &Scrape| requests() > before + 10;
    exporter.until("ten more requests", more).await;
    let scrape = exporter.settled(3).await;
    assert_eq!(scrape.sum(excluded), 4.0);
    assert_eq!(scrape.sum("orgdata_audit_events_late_total"), 0.0);
    assert_eq!(peer.taken_ids(), sent);
}

#[tokio::test]
async fn no_byte_that_leaves_tells_a_user_unless_it_may() {
    for (mode, hashes) in [("hash", 1), ("none", 0)] {
        let (api, peer) = (organization(5, 0).await, Peer::http(1 << 20).await);
        let launch = exporter(&api.base_url())
            .otlp("http/protobuf", &peer.url())
            .flag("--metrics.actor-label", "hash")
            .flag("--metrics.hash-key-file", "hash-key")
            .flag("--otlp.actor", mode);
        std::fs::write(launch.dir().join("hash-key"), "a secret of enough bytes").unwrap();
        let exporter = launch.start();
        exporter.synced().await;
        let id = add(&api, "DEAL_CREATED", 987_654_321);
        let scrape = exporter.settled(1).await;
        let last = format!("{:?}", peer.script.last.lock().unwrap());
        assert!(last.contains(&id) && peer.taken_ids().contains(&id));
        for secret in "Marker marker.example 987654321 user.id user.full_name".split(' ') {
            assert!(!last.contains(secret), "{mode}: {secret}");
        }
        assert_eq!(last.matches("user.hash").count(), hashes, "{mode}");
        let events = scrape.events();
        let label = &events.keys().next().unwrap()[1];
        let has_label = last.contains(label.as_str());
        assert_eq!(has_label, hashes == 1, "{mode}: {label}");
    }
}
