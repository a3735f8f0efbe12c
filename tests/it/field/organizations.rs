//! The organization of the key is remembered and checked by both loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::binary::{Scrape, exporter};
use crate::support::http_peer::{Peer, json};

/// What the log says.
const OTHER: &str = "key belongs to organization 2, but the state file to 1";

fn up(of: &str) -> String {
    format!("orgdata_up{{loop=\"{of}\"}}")
}

/// Reports whether loops fail because of the organization.
fn is_noticed(scrape: &Scrape, loops: &[&str]) -> bool {
    let reason = "reason=\"other_organization\"";
    loops.iter().all(|of| {
        let failure = format!("orgdata_last_failure_info{{loop=\"{of}\",{reason}}}");
        scrape.value(&failure) == Some(1.0) && scrape.value(&up(of)) == Some(0.0)
    })
}

#[tokio::test]
async fn a_key_of_another_organization_is_noticed_by_both_loops_whichever_came_first() {
    for (first, other) in [("tickets", "audit"), ("audit", "tickets")] {
        let organization = Arc::new(AtomicU64::new(1));
        let id = organization.clone();
        let api = Peer::start(move |seen, _| {
            let id = id.load(Ordering::Relaxed);
            let item = match seen.target().starts_with("/v1/tickets") {
                true => format!(r#"{{"id":"odd","state":[],"organizationId":{id}}}"#),
                false => format!(r#"{{"id":"of {id}","type":"X","organizationId":{id}}}"#),
            };
            json("200 OK", format!(r#"{{"items":[{item}],"totalCount":1}}"#))
        });
        let api = api.await;
        let launch = exporter(&api.url()).on_disk();
        let alone = launch.clone().flag(&format!("--{other}.enabled"), "false");
        let mut running = alone.start();
        running.until_value(&up(first), 1.0).await;
        // While it runs, and after a restart.
        organization.store(2, Ordering::Relaxed);
        let is_other = |scrape: &Scrape| is_noticed(scrape, &[first]);
        running.until("another organization", is_other).await;
        running.logs(OTHER).await;
        assert_eq!(running.stop().await, Some(0));
        let running = launch.start();
        let is_other = |scrape: &Scrape| is_noticed(scrape, &[first, other]);
        let scrape = running.until("another organization", is_other).await;
        assert_eq!(scrape.sum("orgdata_audit_events_total"), 0.0);
        assert!(!scrape.has("orgdata_tickets"), "{}", scrape.0);
        organization.store(1, Ordering::Relaxed);
        running.until_value(&up(first), 1.0).await;
        running.until_value(&up(other), 1.0).await;
    }
}
