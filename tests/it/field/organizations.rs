//! The organization of the key is checked and remembered by both loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::binary::{Scrape, exporter};
use crate::support::http_peer::{Peer, json};

const OTHER: &str = "key belongs to organization 2, but the state file to 1";

/// An API whose key belongs to an organization, without entries if they are of 0.
struct Api {
    peer: Peer,
    tickets_of: Arc<AtomicU64>,
    entries_of: Arc<AtomicU64>,
}

impl Api {
    async fn new(entries_of: u64) -> Self {
        let tickets_of = Arc::new(AtomicU64::new(1));
        let entries_of = Arc::new(AtomicU64::new(entries_of));
        let of = (tickets_of.clone(), entries_of.clone());
        let peer = Peer::start(move |seen, _| {
            if seen.target().starts_with("/v1/tickets") {
                let id = of.0.load(Ordering::Relaxed);
                // Each ticket has one odd field.
                let odd = [r#""dealAmountSum":"12.50""#, r#""state":[]"#, r#""id":"x""#];
                let odd = odd.map(|odd| format!(r#"{{{odd},"organizationId":{id}}}"#));
                let items = odd.join(",");
                return json("200 OK", format!(r#"{{"items":[{items}],"totalCount":3}}"#));
            }
            let entry = match of.1.load(Ordering::Relaxed) {
                0 => String::new(),
                id => format!(r#"{{"id":"of {id}","type":"X","organizationId":{id}}}"#),
            };
            json("200 OK", format!(r#"{{"items":[{entry}]}}"#))
        });
        Self {
            peer: peer.await,
            tickets_of,
            entries_of,
        }
    }

    /// From now on the key belongs to another organization.
    fn is_replaced(&self) {
        self.tickets_of.store(2, Ordering::Relaxed);
        self.entries_of.store(2, Ordering::Relaxed);
    }
}

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
async fn a_key_of_another_organization_is_noticed_without_the_audit_logs() {
    let api = Api::new(0).await;
    let launch = exporter(&api.peer.url()).on_disk();
    let launch = launch.flag("--audit.enabled", "false");
    let mut first = launch.start();
    first.until_value(&up("tickets"), 1.0).await;
    let known =
        r#"orgdata_organization_info{organization_id="1",organization_name="",api="127.0.0.1"}"#;
    first.until_value(known, 1.0).await;
    // While it runs, and after a restart.
    api.is_replaced();
    let is_other = |scrape: &Scrape| is_noticed(scrape, &["tickets"]);
    first.until("another organization", is_other).await;
    first.logs(OTHER).await;
    assert_eq!(first.stop().await, Some(0));
    let second = launch.start();
    let scrape = second.until("another organization", is_other).await;
    assert!(!scrape.has("orgdata_tickets"), "{}", scrape.0);
    api.tickets_of.store(1, Ordering::Relaxed);
    second.until_value(&up("tickets"), 1.0).await;
}

#[tokio::test]
async fn what_one_loop_remembers_the_other_one_checks() {
    for (entries_of, remembers) in [(0, "tickets"), (1, "audit")] {
        let api = Api::new(entries_of).await;
        let launch = exporter(&api.peer.url()).on_disk();
        let first = match remembers {
            "audit" => launch.clone().flag("--tickets.enabled", "false").start(),
            _ => launch.clone().start(),
        };
        first.until_value(&up(remembers), 1.0).await;
        drop(first);
        api.is_replaced();
        let second = launch.start();
        let is_other = |scrape: &Scrape| is_noticed(scrape, &["audit", "tickets"]);
        let scrape = second.until("another organization", is_other).await;
        assert_eq!(scrape.sum("orgdata_audit_events_total"), 0.0);
    }
}
