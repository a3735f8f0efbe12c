//! The ticket listing, and how tickets change.

use std::collections::HashSet;
use std::time::Duration;

use orgdata_simulator::{Fields, TicketOrder, TotalCount};
use serde_json::{Value, json};

use crate::support::{get, with_history};

#[tokio::test]
async fn tickets_are_paged_by_offset() {
    let sim = with_history(0, |config| config.tickets = 230).await;
    let (_, first) = get(&sim, "/v1/tickets").await;
    assert_eq!(
        (&first["limit"], &first["offset"], &first["totalCount"]),
        (&json!(100), &json!(0), &json!(230))
    );
    let mut seen = Vec::new();
    for offset in [0, 100, 200] {
        let (_, page) = get(&sim, &format!("/v1/tickets?offset={offset}")).await;
        assert_eq!(page["offset"], offset);
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|ticket| ticket["id"].as_u64().unwrap()),
        );
    }
    assert_eq!(seen, (1..=230).rev().collect::<Vec<_>>());
    assert_eq!(
        get(&sim, "/v1/tickets?offset=230").await.1["items"],
        json!([])
    );
    sim.change_readings(|readings| {
        readings.ignore_offset = true;
        readings.total_count = TotalCount::Missing;
        readings.ticket_order = TicketOrder::OldestFirst;
    });
    let (_, page) = get(&sim, "/v1/tickets?offset=100&limit=1").await;
    assert_eq!(
        (
            &page["items"][0]["id"],
            &page["offset"],
            page.get("totalCount")
        ),
        (&json!(1), &json!(100), None)
    );
}

#[tokio::test]
async fn tickets_change_by_hand_and_by_the_clock() {
    let run = || async {
        let sim = with_history(0, |config| {
            config.tickets = 50;
            config.ticket_change_rate = 1.0;
        })
        .await;
        sim.advance(Duration::from_secs(200));
        get(&sim, "/v1/tickets?limit=1000").await.1
    };
    let (page, again) = (run().await, run().await);
    assert_eq!(page, again);
    let (_, start) = get(
        &with_history(0, |config| config.tickets = 50).await,
        "/v1/tickets?limit=1000",
    )
    .await;
    assert_ne!(page["items"], start["items"]);

    let sim = with_history(0, |config| config.tickets = 50).await;
    let id = sim
        .add_ticket(Fields::new().with("dealAmountSum", 0.1))
        .unwrap();
    sim.change_ticket(
        id,
        Fields::new()
            .with("state", "NEVER_SEEN")
            .with("linkedDeals", Value::Null),
    )
    .unwrap();
    let (_, page) = get(&sim, "/v1/tickets?limit=1").await;
    let ticket = &page["items"][0];
    assert_eq!(
        (&ticket["id"], &ticket["state"], &ticket["dealAmountSum"]),
        (&json!(id), &json!("NEVER_SEEN"), &json!(0.1))
    );
    assert_eq!(ticket["linkedDeals"], Value::Null);
    sim.remove_ticket(id).unwrap();
    assert!(sim.remove_ticket(id).is_err() && sim.change_ticket(id, Fields::new()).is_err());
    let before = sim.ticket_ids();
    sim.shuffle_tickets(3);
    assert_ne!(sim.ticket_ids(), before);
    sim.clear_tickets();
    assert_eq!(get(&sim, "/v1/tickets").await.1["totalCount"], 0);
}

#[tokio::test]
async fn the_truth_about_tickets_is_what_the_listing_adds_up_to() {
    let sim = with_history(0, |config| config.tickets = 400).await;
    sim.add_ticket(
        Fields::new()
            .with("dealAmountSum", 0.1)
            .with("state", "OPEN")
            .with("linkedDeals", json!([{ "id": 1, "priority": "ODD" }])),
    )
    .unwrap();
    let (_, page) = get(&sim, "/v1/tickets?limit=1000").await;
    let tickets = page["items"].as_array().unwrap();
    let truth = sim.ticket_truth(&["OPEN"]);
    assert_eq!(truth.total, 401);
    let open: Vec<_> = tickets
        .iter()
        .filter(|ticket| ticket["state"] == "OPEN")
        .collect();
    let groups: Vec<_> = truth
        .groups
        .iter()
        .filter(|(group, _)| group.state == "OPEN")
        .collect();
    assert_eq!(
        groups.iter().map(|(_, sums)| sums.tickets).sum::<u64>(),
        open.len() as u64
    );
    let cents: i128 = open
        .iter()
        .map(|ticket| (ticket["dealAmountSum"].as_f64().unwrap_or(0.0) * 100.0).round() as i128)
        .sum();
    assert_eq!(
        groups.iter().map(|(_, sums)| sums.cents).sum::<i128>(),
        cents
    );
    let now = sim.now().to_string();
    let overdue = open
        .iter()
        .filter(|ticket| {
            ticket["targetDueDate"]
                .as_str()
                .is_some_and(|due| due < now.as_str())
        })
        .count();
    assert_eq!(
        groups.iter().map(|(_, sums)| sums.overdue).sum::<u64>(),
        overdue as u64
    );
    let deals: HashSet<_> = open
        .iter()
        .flat_map(|ticket| ticket["linkedDeals"].as_array().into_iter().flatten())
        .map(|deal| deal["id"].as_i64())
        .collect();
    assert_eq!(truth.open_deals.values().sum::<u64>(), deals.len() as u64);
    assert_eq!(truth.open_deals["ODD"], 1);
    assert_eq!(sim.tickets().len(), 401);
}
