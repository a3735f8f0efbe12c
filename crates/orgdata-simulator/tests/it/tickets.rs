//! The ticket listing, and how tickets change.

use orgdata_simulator::{Fields, Running, TotalCount};
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
        readings.tickets_oldest_first = true;
    });
    let page = page(&sim, "offset=100&limit=1").await;
    assert_eq!(
        (&page["items"][0]["id"], &page["offset"]),
        (&json!(1), &json!(100))
    );
    assert_eq!(page.get("totalCount"), None);
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
