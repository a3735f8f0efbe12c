//! The ticket listing, and how tickets change.

use std::collections::HashSet;
use std::time::Duration;

use orgdata_simulator::{Fields, Running, TicketOrder, TicketSums, TotalCount};
use serde_json::{Value, json};

use crate::support::{get, items, with_history};

/// Returns a page of tickets.
async fn page(sim: &Running, query: &str) -> Value {
    get(sim, &format!("/v1/tickets?{query}")).await.1
}

#[tokio::test]
async fn tickets_are_paged_by_offset() {
    let sim = with_history(0, |config| config.tickets = 230).await;
    let mut seen = Vec::new();
    for offset in [0, 100, 200] {
        let page = page(&sim, &format!("offset={offset}")).await;
        let said = ["limit", "offset", "totalCount"].map(|name| page[name].as_u64());
        assert_eq!(said, [Some(100), Some(offset), Some(230)]);
        seen.extend(items(&page).iter().map(|ticket| ticket["id"].clone()));
    }
    assert_eq!(seen, (1..=230).rev().collect::<Vec<_>>());
    assert!(items(&page(&sim, "offset=230").await).is_empty());
    sim.change_readings(|readings| {
        readings.ignore_offset = true;
        readings.total_count = TotalCount::Missing;
        readings.ticket_order = TicketOrder::OldestFirst;
    });
    let page = page(&sim, "offset=100&limit=1").await;
    assert_eq!(
        (&page["items"][0]["id"], &page["offset"]),
        (&json!(1), &json!(100))
    );
    assert_eq!(page.get("totalCount"), None);
}

#[tokio::test]
async fn tickets_change_by_the_clock() {
    let run = async |seconds| {
        let sim = with_history(0, |config| {
            config.tickets = 50;
            config.ticket_change_rate = 1.0;
        })
        .await;
        sim.advance(Duration::from_secs(seconds));
        page(&sim, "limit=1000").await
    };
    let (first, again, start) = (run(200).await, run(200).await, run(0).await);
    assert_eq!(first, again);
    assert_ne!(first["items"], start["items"]);
}

#[tokio::test]
async fn tickets_change_by_hand() {
    let sim = with_history(0, |config| config.tickets = 50).await;
    let fields = Fields::new().with("dealAmountSum", 0.1);
    let id = sim.add_ticket(fields).unwrap();
    let fields = Fields::new().with("state", "NEVER_SEEN");
    let fields = fields.with("linkedDeals", Value::Null);
    sim.change_ticket(id, fields).unwrap();
    let newest = &page(&sim, "limit=1").await["items"][0];
    for (field, expected) in [
        ("id", json!(id)),
        ("state", json!("NEVER_SEEN")),
        ("dealAmountSum", json!(0.1)),
        ("linkedDeals", Value::Null),
    ] {
        assert_eq!(newest[field], expected);
    }
    sim.remove_ticket(id).unwrap();
    assert!(sim.remove_ticket(id).is_err() && sim.change_ticket(id, Fields::new()).is_err());
    let before = sim.ticket_ids();
    sim.shuffle_tickets(3);
    assert_ne!(sim.ticket_ids(), before);
    sim.clear_tickets();
    assert_eq!(page(&sim, "").await["totalCount"], 0);
}

#[tokio::test]
async fn the_truth_about_tickets_is_what_the_listing_adds_up_to() {
    let sim = with_history(0, |config| config.tickets = 400).await;
    let fields = Fields::new().with("dealAmountSum", 0.1);
    let odd = json!([{ "id": 1, "priority": "ODD" }]);
    let fields = fields.with("state", "OPEN").with("linkedDeals", odd);
    sim.add_ticket(fields).unwrap();
    let (page, truth) = (page(&sim, "limit=1000").await, sim.ticket_truth(&["OPEN"]));
    assert_eq!((truth.total, sim.tickets().len()), (401, 401));
    let now = sim.now().to_string();
    let mut expected = TicketSums::default();
    let mut deals = HashSet::new();
    for ticket in items(&page) {
        if ticket["state"] != "OPEN" {
            continue;
        }
        let amount = ticket["dealAmountSum"].as_f64().unwrap_or(0.0);
        let due = ticket["targetDueDate"].as_str();
        expected.tickets += 1;
        expected.cents += (amount * 100.0).round() as i128;
        expected.overdue += u64::from(due.is_some_and(|due| due < now.as_str()));
        let links = ticket["linkedDeals"].as_array().into_iter().flatten();
        deals.extend(links.map(|deal| deal["id"].as_i64()));
    }
    let mut sums = TicketSums::default();
    for (group, of_group) in truth.groups {
        if group.state == "OPEN" {
            sums.tickets += of_group.tickets;
            sums.cents += of_group.cents;
            sums.overdue += of_group.overdue;
        }
    }
    assert_eq!(sums, expected);
    assert_eq!(truth.open_deals.values().sum::<u64>(), deals.len() as u64);
    assert_eq!(truth.open_deals["ODD"], 1);
}
