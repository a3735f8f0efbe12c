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

/// Bodies that no API should send; `fuzz/` has more of them.
fn nonsense() -> Vec<String> {
    let (digits, name) = ("1".repeat(100_000), "n".repeat(100_000));
    let items = [
        // The first with an organization names it for good.
        format!(r#"{{"id":"name","type":"T","organizationId":1,"organization":{{"name":"{name}"}},"state":"{name}"}}"#),
        format!(r#"{{"id":{digits},"type":"T","organizationId":{digits},"state":7}}"#),
        r#"null,[],{},0,"x",true,{"id":1e999,"type":[],"createdAt":{}}"#.to_owned(),
        r#"{"id":"min","type":"T","createdAt":"-009999-01-02T01:59:59Z"},{"id":"max","type":"T","createdAt":"9999-12-31T23:59:59.999Z"}"#.to_owned(),
        r#"{"id":1,"state":"OPEN","type":"BUG","targetDueDate":"9999-12-30T22:00:00.999999999Z","dealAmountSum":1.7e308,"linkedDeals":[{"id":1,"priority":null},null,7]},
           {"id":0.1,"state":"OPEN","createdAt":"x","targetDueDate":7,"dealAmountSum":1.7e308,"linkedDeals":{}},{"id":"4"}"#
            .to_owned(),
    ];
    // Cursors that lead nowhere, or back to the same page.
    let cursors = [("null", "null"), ("\"\"", "\"\""), ("\"s\"", "\"e\"")];
    let pages = |item: &String| cursors.map(|(start, end)| page(item, start, end));
    let mut bodies: Vec<String> = items.iter().flat_map(pages).collect();
    bodies.push(page("", "7", &format!("\"{}\"", "c".repeat(20_000))));
    bodies.extend([r#"{"items":{}}"#, "[]"].map(str::to_owned));
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
    assert!(metrics.contains("organization_name=\"nnn"), "{metrics}");
    heal.store(true, Ordering::Relaxed);
    exporter.until_value(UP, 1.0).await;
    exporter.until_value(TICKETS_UP, 1.0).await;
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    let is_bug = log.contains("panicked") || log.contains("please report");
    assert!(!is_bug, "{log}");
    let longest = |text: &str| text.lines().map(str::len).max();
    assert!(longest(&log) < Some(1_000), "{log}");
    assert!(longest(&metrics) < Some(1_000) && metrics.len() < 1 << 20);
}
