//! The organization of the key is checked and remembered by both loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::binary::{Scrape, exporter};
use crate::support::http_peer::{NO_ENTRIES, Peer, json};

const OTHER: &str = "key belongs to organization 2, but the state file to 1";

/// An API whose key belongs to an organization.
struct Api {
    peer: Peer,
    organization: Arc<AtomicU64>,
    has_entries: Arc<AtomicBool>,
}

impl Api {
    async fn new(has_entries: bool) -> Self {
        let organization = Arc::new(AtomicU64::new(1));
        let has_entries = Arc::new(AtomicBool::new(has_entries));
        let (id, are_there) = (organization.clone(), has_entries.clone());
        let peer = Peer::start(move |seen, _| {
            let id = id.load(Ordering::Relaxed);
            if seen.target().starts_with("/v1/tickets") {
                // Each ticket has one odd field.
                let odd = [
                    "\"dealAmountSum\":\"12.50\"",
                    "\"state\":[]",
                    "\"id\":\"x\"",
                ];
                let odd = odd.map(|odd| format!(r#"{{{odd},"organizationId":{id}}}"#));
                let items = odd.join(",");
                return json("200 OK", format!(r#"{{"items":[{items}],"totalCount":3}}"#));
            }
            if !are_there.load(Ordering::Relaxed) {
                return json("200 OK", NO_ENTRIES);
            }
            let at = r#""createdAt":"2026-01-01T00:00:00Z""#;
            let entry = format!(r#"{{"id":"of {id}","type":"X",{at},"organizationId":{id}}}"#);
            json("200 OK", format!(r#"{{"items":[{entry}]}}"#))
        });
        Self {
            peer: peer.await,
            organization,
            has_entries,
        }
    }

    fn belongs_to(&self, organization: u64) {
        self.organization.store(organization, Ordering::Relaxed);
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
    let api = Api::new(false).await;
    let launch = exporter(&api.peer.url()).on_disk();
    let launch = launch.flag("--audit.enabled", "false");
    let mut first = launch.start();
    first.until_value(&up("tickets"), 1.0).await;
    let known =
        r#"orgdata_organization_info{organization_id="1",organization_name="",api="127.0.0.1"}"#;
    first.until_value(known, 1.0).await;
    // While it runs, and after a restart.
    api.belongs_to(2);
    let is_other = |scrape: &Scrape| is_noticed(scrape, &["tickets"]);
    first.until("another organization", is_other).await;
    first.logs(OTHER).await;
    assert_eq!(first.stop().await, Some(0));
    let second = launch.start();
    let scrape = second.until("another organization", is_other).await;
    assert!(!scrape.0.contains("orgdata_tickets{"), "{}", scrape.0);
    api.belongs_to(1);
    second.until_value(&up("tickets"), 1.0).await;
}

#[tokio::test]
async fn what_one_loop_remembers_the_other_one_checks() {
    let api = Api::new(false).await;
    let launch = exporter(&api.peer.url()).on_disk();
    let running = launch.start();
    running.until_value(&up("tickets"), 1.0).await;
    api.belongs_to(2);
    api.has_entries.store(true, Ordering::Relaxed);
    let is_other = |scrape: &Scrape| is_noticed(scrape, &["audit", "tickets"]);
    let scrape = running.until("another organization", is_other).await;
    assert_eq!(scrape.sum("orgdata_audit_events_total"), 0.0);
    drop(running);

    let api = Api::new(true).await;
    let launch = exporter(&api.peer.url()).on_disk();
    let mut first = launch.clone().flag("--tickets.enabled", "false").start();
    first.until_value(&up("audit"), 1.0).await;
    assert_eq!(first.stop().await, Some(0));
    api.belongs_to(2);
    let second = launch.start();
    second.until("another organization", is_other).await;
}
