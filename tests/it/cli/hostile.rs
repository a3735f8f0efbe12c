//! An API that sends nonsense: the exporter stays up, requests no faster than it may, and works once the API does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{ONE_ENTRY, TICKETS_UP, UP};
use crate::support::binary::{exporter, until};
use crate::support::http_peer::{NO_TICKETS, Peer, answer, json};

fn page(items: &str, start: &str, end: &str) -> String {
    format!(
        r#"{{"items":[{items}],"startCursor":{start},"endCursor":{end},"hasPrevious":true,"hasMore":true,"limit":1e300,"offset":-1,"totalCount":1e18}}"#
    )
}

fn entry(id: &str, created_at: &str, metadata: &str) -> String {
    let absent = "dealId evaluationId targetUserId modifiedTargetUserId organization evaluation deal actorUser targetUser modifiedTargetUser task requirement meeting ticket teamRequest";
    let null = |field| format!(r#","{field}":null"#);
    let absent: String = absent.split(' ').map(null).collect();
    format!(
        r#"{{"id":"{id}","type":"T","createdAt":"{created_at}","occurredAt":"{created_at}","updatedAt":"{created_at}","organizationId":1,"actorUserId":7,"metadata":{metadata}{absent}}}"#
    )
}

/// Bodies that no API should send.
fn nonsense() -> Vec<String> {
    let (digits, name) = ("1".repeat(100_000), "n".repeat(100_000));
    let items = [
        // The first with an organization names it for good.
        format!(r#"{{"id":"name","type":"T","organizationId":1,"organization":{{"name":"{name}"}},"state":"{name}"}}"#),
        format!(r#"{{"id":{digits},"type":"T","organizationId":{digits},"state":7}}"#),
        "null".to_owned(),
        "[],{},0,\"x\",true".to_owned(),
        r#"{"id":null,"type":null,"createdAt":null}"#.to_owned(),
        r#"{"id":1e999,"type":"x","createdAt":"2026-01-01T00:00:00Z"}"#.to_owned(),
        r#"{"id":{},"type":[],"createdAt":{}}"#.to_owned(),
        entry("", "2026-01-01T00:00:00Z", "null"),
        entry("min", "-009999-01-02T01:59:59Z", "null"),
        entry("max", "9999-12-30T22:00:00.999999999Z", "null"),
        entry("beyond", "9999-12-31T23:59:59.999Z", "null"),
        entry(&"long".repeat(100_000), "2026-01-01T00:00:00Z", "null"),
        entry("\\u0000\\n\\\"", "2026-01-01T00:00:00Z", "null"),
        r#"{"id":1,"state":"OPEN","type":"BUG","createdAt":"-009999-01-02T01:59:59Z","targetDueDate":"9999-12-30T22:00:00.999999999Z","dealAmountSum":1.7e308,"linkedDeals":[{"id":1,"priority":null},null,7]},
           {"id":2,"state":"OPEN","type":"BUG","createdAt":"x","targetDueDate":7,"dealAmountSum":1.7e308,"linkedDeals":{}},
           {"id":3,"state":"OPEN","type":"BUG","dealAmountSum":1.7e308},{"id":-1e308},{"id":0.1},{"id":"4"}"#
            .to_owned(),
    ];
    // Cursors that lead nowhere, or back to the same page.
    let cursors = ["null null", "\"\" \"\"", "\"s\" \"e\"", "null \"e\""];
    let cursors = cursors.map(|pair| pair.split_once(' ').unwrap());
    let pages = |item: &String| cursors.map(|(start, end)| page(item, start, end));
    let mut bodies: Vec<String> = items.iter().flat_map(pages).collect();
    bodies.push(page("", "\"s\"", &format!("\"{}\"", "c".repeat(20_000))));
    bodies.push(page("", "7", "{}"));
    bodies.push(r#"{"items":{}}"#.to_owned());
    bodies.push("[]".to_owned());
    bodies
}

#[tokio::test]
async fn nonsense_neither_ends_nor_spins_it() {
    let bodies = nonsense();
    let count = bodies.len();
    let heal = Arc::new(AtomicBool::new(false));
    let healed = Arc::clone(&heal);
    let peer = Peer::start(move |seen, number| {
        let json = |body: &str| json("200 OK", body);
        let headers = [
            "content-type: application/json",
            "date: Fri, 31 Dec 9999 23:59:59 GMT",
        ];
        match healed.load(Ordering::Relaxed) {
            true if seen.target().contains("/v1/tickets") => json(NO_TICKETS),
            true => json(ONE_ENTRY),
            false if number % 5 == 0 => answer("200 OK", &headers, &bodies[number % count]),
            false => json(&bodies[number % count]),
        }
    })
    .await;
    let started = Instant::now();
    let mut exporter = exporter(&peer.url())
        .args(&["--audit.start=oldest", "--audit.reread-interval=300ms"])
        .start();
    let read = async || (peer.count() > count * 3).then_some(());
    until("every body was read", read).await;
    let rate = peer.count() as f64 / started.elapsed().as_secs_f64();
    // A hundred per second are allowed, and as many at once.
    assert!(rate < 220.0, "{rate} requests per second");
    for path in ["/-/healthy", "/"] {
        assert_eq!(exporter.get(path).await.0, 200, "{path}");
    }
    let metrics = exporter.metrics().await;
    let is_named = metrics.contains("organization_name=\"nnn");
    assert!(is_named, "{metrics}");
    heal.store(true, Ordering::Relaxed);
    exporter.until_value(UP, 1.0).await;
    exporter.until_value(TICKETS_UP, 1.0).await;
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert!(!log.contains("panicked"), "{log}");
    assert!(!log.contains("please report"), "{log}");
    let longest = |text: &str| text.lines().map(str::len).max();
    assert!(longest(&log) < Some(1_000), "{log}");
    assert!(longest(&metrics) < Some(1_000) && metrics.len() < 1 << 20);
}
