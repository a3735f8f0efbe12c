//! The ticket listing, and how tickets change.

use orgdata_simulator::{Running, TotalCount};
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
