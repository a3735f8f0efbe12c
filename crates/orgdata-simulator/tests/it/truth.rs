//! What a test holds on to: the truth, the hook, start and stop.

use std::time::Duration;

use orgdata_simulator::{Fields, Scope};

use crate::support::{all_ids, with_history};

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
