//! What a test holds on to: the truth, the hook, start and stop.

use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{ClockSource, Fields, Scope};

use crate::support::{all_ids, listed, raw, with_history};

#[tokio::test]
async fn a_hook_sees_every_request_and_can_change_the_world_before_it_is_answered() {
    let sim = with_history(0, |_| ()).await;
    sim.on_request(Box::new(|info, sim| {
        assert_eq!(info.param("limit"), Some("7"));
        sim.add_events(2);
        None
    }));
    assert_eq!(listed(&sim, "limit=7").await.len(), 2);
    assert_eq!(listed(&sim, "limit=7").await.len(), 4);
    let requests = sim.requests();
    assert_eq!(
        (requests.audit, requests.tickets, requests.statuses[&200]),
        (2, 0, 2)
    );
    assert_eq!(
        (requests.last.len(), requests.last[1].param("limit")),
        (2, Some("7"))
    );
}

#[tokio::test]
async fn answers_carry_the_date_of_the_clock() {
    let sim = with_history(0, |_| ()).await;
    sim.advance(Duration::from_secs(60));
    let response = raw(&sim, "/v1/tickets").await.unwrap();
    assert_eq!(response.headers()["date"], "Tue, 01 Jan 2030 00:01:00 GMT");
}

#[tokio::test]
async fn the_truth_counts_what_is_served_and_what_was_taken_away() {
    let sim = with_history(300, |_| ()).await;
    let start = sim.mark();
    let listed = all_ids(&sim, "limit=100").await;
    let entries: Vec<_> = sim.entries().collect();
    assert!(
        entries
            .iter()
            .rev()
            .map(|entry| entry.id.clone())
            .eq(listed)
    );
    let truth = sim.truth();
    assert_eq!(
        (truth.total, truth.counts.values().sum::<u64>()),
        (300, 300)
    );
    sim.advance(Duration::from_secs(5));
    sim.add_events(10);
    sim.add_late(4, Duration::from_secs(7200));
    sim.add_entry(
        &Fields::new()
            .with("actorUserId", 77)
            .with("type", "DEAL_WON"),
    )
    .unwrap();
    sim.restore(6);
    let arrived = sim.truth_of(Scope::arrived_since(start));
    assert_eq!(arrived.total, 15);
    assert_eq!(arrived.counts[&("DEAL_WON".to_owned(), Some(77))], 1);
    assert_eq!(sim.entries_of(Scope::arrived_since(start)).count(), 15);
}

#[tokio::test]
async fn the_seed_decides_what_is_served() {
    let served = |seed: u64| async move {
        let sim = with_history(200, |config| {
            config.seed = seed;
            config.rate = 3.0;
            config.tickets = 50;
            config.ticket_change_rate = 1.0;
        })
        .await;
        sim.advance(Duration::from_secs(100));
        sim.add_late(2, Duration::from_secs(60));
        (
            sim.entries().map(|entry| entry.json).collect::<Vec<_>>(),
            sim.tickets(),
        )
    };
    let (first, again, other) = (served(1).await, served(1).await, served(2).await);
    assert!(first == again);
    assert!(first.0 != other.0 && first.1 != other.1);
}

#[tokio::test]
async fn one_that_starts_later_has_the_same_entries_with_other_ids() {
    let [first, later] = [0, 1].map(async |seconds| {
        let start = Timestamp::from_second(1_893_456_000 + seconds).unwrap();
        let sim = with_history(50, |config| config.clock = ClockSource::Manual(start)).await;
        let entries = sim
            .entries()
            .map(|entry| (entry.id, entry.activity_type, entry.actor));
        entries.collect::<Vec<_>>()
    });
    let (first, later) = (first.await, later.await);
    for (one, other) in first.iter().zip(&later) {
        assert_ne!(one.0, other.0);
        assert_eq!((&one.1, one.2), (&other.1, other.2));
    }
}
