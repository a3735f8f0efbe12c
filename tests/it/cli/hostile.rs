//! A service that answers nonsense, page after page: the exporter stays up, asks no faster than it may, and works once the service does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::binary::{exporter, until};
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS, Peer, answer, json};

const UP: &str = "orgdata_up{loop=\"audit\"}";

/// Whole entry, but for the fields given first.
fn entry(fields: &str) -> String {
    format!(
        r#"{{{fields},"type":"T","occurredAt":"2026-01-01T00:00:00Z","updatedAt":"2026-01-01T00:00:00Z","organizationId":1,"dealId":null,"evaluationId":null,"actorUserId":7,"targetUserId":null,"modifiedTargetUserId":null,"organization":null,"evaluation":null,"deal":null,"actorUser":null,"targetUser":null,"modifiedTargetUser":null,"task":null,"requirement":null,"meeting":null,"ticket":null,"teamRequest":null}}"#
    )
}

fn page(items: &str, start: &str, end: &str) -> String {
    format!(
        r#"{{"items":[{items}],"startCursor":{start},"endCursor":{end},"hasPrevious":true,"hasMore":true,"limit":1e300,"offset":-1,"totalCount":1e18}}"#
    )
}

/// Bodies that no service should send.
fn nonsense() -> Vec<String> {
    let whole = |id: &str, at: &str| {
        entry(&format!(
            r#""id":"{id}","createdAt":"{at}","metadata":null"#
        ))
    };
    let items = [
        "null".to_owned(),
        "[],{},0,\"x\",true".to_owned(),
        r#"{"id":null,"type":null,"createdAt":null}"#.to_owned(),
        r#"{"id":1e999,"type":"x","createdAt":"2026-01-01T00:00:00Z"}"#.to_owned(),
        r#"{"id":{},"type":[],"createdAt":{}}"#.to_owned(),
        whole("", "2026-01-01T00:00:00Z"),
        whole("min", "-009999-01-02T01:59:59Z"),
        whole("max", "9999-12-30T22:00:00.999999999Z"),
        whole("beyond", "9999-12-31T23:59:59.999Z"),
        whole(&"long".repeat(100_000), "2026-01-01T00:00:00Z"),
        whole("\\u0000\\n\\\"", "2026-01-01T00:00:00Z"),
        r#"{"id":1,"state":"OPEN","type":"BUG","createdAt":"-009999-01-02T01:59:59Z","targetDueDate":"9999-12-30T22:00:00.999999999Z","dealAmountSum":1.7e308,"linkedDeals":[{"id":1,"priority":null},null,7]},
           {"id":2,"state":"OPEN","type":"BUG","createdAt":"x","targetDueDate":7,"dealAmountSum":1.7e308,"linkedDeals":{}},
           {"id":3,"state":"OPEN","type":"BUG","dealAmountSum":1.7e308},{"id":-1e308},{"id":0.1},{"id":"4"}"#
            .to_owned(),
    ];
    let mut bodies = Vec::new();
    for item in items {
        // Cursors that lead nowhere, or here again.
        for (start, end) in [
            ("null", "null"),
            ("\"\"", "\"\""),
            ("\"s\"", "\"e\""),
            ("null", "\"e\""),
        ] {
            bodies.push(page(&item, start, end));
        }
    }
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
    let peer = Peer::start(move |seen, number| match seen.target() {
        target if healed.load(Ordering::Relaxed) => json(
            "200 OK",
            if target.contains("/v1/tickets") {
                NO_TICKETS
            } else {
                NO_ENTRIES
            },
        ),
        _ if number % 5 == 0 => answer(
            "200 OK",
            &[
                "content-type: application/json",
                "date: Fri, 31 Dec 9999 23:59:59 GMT",
            ],
            &bodies[number % count],
        ),
        _ => json("200 OK", &bodies[number % count]),
    })
    .await;
    let started = Instant::now();
    let launch = exporter(&peer.url())
        .arg("--audit.start=oldest")
        .arg("--audit.reread-interval=300ms");
    let mut exporter = launch.start();
    until("every body was read", async || {
        (peer.count() > count * 3).then_some(())
    })
    .await;
    let rate = peer.count() as f64 / started.elapsed().as_secs_f64();
    // A hundred a second are allowed, and as many at once.
    assert!(rate < 220.0, "{rate} requests a second");
    assert_eq!(
        (
            exporter.get("/-/healthy").await.0,
            exporter.get("/").await.0
        ),
        (200, 200)
    );
    heal.store(true, Ordering::Relaxed);
    exporter.until_value(UP, 1.0).await;
    exporter
        .until_value("orgdata_up{loop=\"tickets\"}", 1.0)
        .await;
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert!(
        !log.contains("panicked") && !log.contains("defect"),
        "{log}"
    );
}

#[tokio::test]
async fn an_entry_of_any_depth_goes_through_to_the_collector() {
    let deep = format!("{}1{}", r#"{"x":["#.repeat(50_000), "]}".repeat(50_000));
    let body = page(
        &entry(&format!(
            r#""id":"deep","createdAt":"2026-01-01T00:00:00Z","metadata":{deep}"#
        )),
        "\"s\"",
        "\"e\"",
    );
    let peer = Peer::start(move |seen, _| match seen.target() {
        target if target.contains("/v1/tickets") => json("200 OK", NO_TICKETS),
        target if target.contains("before=") || target.contains("after=") => {
            json("200 OK", NO_ENTRIES)
        }
        _ => json("200 OK", &body),
    })
    .await;
    // An empty success is an acknowledgement.
    let collector = Peer::always(answer(
        "200 OK",
        &["content-type: application/x-protobuf"],
        "",
    ))
    .await;
    let launch = exporter(&peer.url())
        .arg("--audit.start=oldest")
        .arg("--otlp.protocol=http/protobuf");
    let mut exporter = launch
        .arg(&format!("--otlp.endpoint={}", collector.url()))
        .start();
    exporter
        .until_value("orgdata_otlp_records_sent_total", 1.0)
        .await;
    assert_eq!(
        exporter.stop().await,
        Some(0),
        "{}",
        exporter.stderr().text()
    );
}
