//! The whole program at three servers that were written from the contract alone, by somebody who knew neither client nor simulator. Whatever
//! they make of what the contract leaves open, each event is counted once and delivered, and the tickets are those that there are.
//!
//! To play more: `SEEDS=200 cargo test --locked --test it standins`; to play one of them: `SEED=17`.

mod readings;
mod world;

use std::collections::BTreeMap;
use std::env;

use crate::support::binary::{Exporter, exporter, until, until_ok};
use crate::support::collector_peer::Peer;
use crate::support::scrape::{Scrape, actor, assert_complete};
use readings::{Arrival, Seconds, Tokens};
use world::{Reading, Standin};

/// The number of steps of a script.
const STEPS: usize = 40;

/// The requests in which an exporter could still count something wrong.
const MORE: usize = 20;

#[tokio::test]
async fn a_server_that_lists_entries_as_they_arrive() {
    play(|seed| Arrival {
        most: [1000, 2, 10][seed % 3],
    })
    .await;
}

#[tokio::test]
async fn a_server_with_unusual_cursors_and_times() {
    play(|seed| Tokens::new([5, 2, 20][seed % 3])).await;
}

#[tokio::test]
async fn a_server_that_knows_only_seconds() {
    play(|seed| Seconds {
        refuses: seed.is_multiple_of(2),
        // The exporter asks for a minute before it believes that.
        guesses: seed % 50 == 49,
    })
    .await;
}

async fn play<R: Reading>(reading: impl Fn(usize) -> R) {
    let number = |name| env::var(name).ok()?.parse().ok();
    let seeds = match number("SEED") {
        Some(seed) => seed..=seed,
        None => 0..=number("SEEDS").map_or(0, |seeds: usize| seeds - 1),
    };
    for seed in seeds {
        eprintln!("SEED={seed}");
        play_one(reading(seed), seed as u64).await;
    }
}

/// Plays the script of a seed to an exporter that is killed in the middle of it.
async fn play_one(reading: impl Reading, seed: u64) {
    let standin = Standin::start(reading, seed, STEPS).await;
    let past = async |step| {
        let is_past = async || (standin.world().step >= step).then_some(());
        until("more requests", is_past).await;
    };
    let peer = Peer::grpc(4 << 20).await;
    // In memory if possible: only a power failure needs a disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.unwrap();
    let launch = exporter(&standin.url())
        .flag("--audit.poll-interval", "20ms")
        .flag("--audit.reread-interval", "200ms")
        .state(&dir.path().join("state.db"))
        .otlp("grpc", &peer.url());
    let mut exporter = launch.listening().await;
    exporter.logs("first sync is done").await;
    standin.world().begin();
    past(STEPS / 2).await;
    exporter.kill();
    for _ in 0..STEPS / 8 {
        standin.world().advance();
    }
    let exporter = launch.listening().await;
    past(STEPS).await;
    is_right(&exporter, &standin).await;
    let step = standin.world().step;
    past(step + MORE).await;
    is_right(&exporter, &standin).await;
    is_delivered(&peer, standin.world().ids().cloned());
}

/// Waits until the exporter shows what is true and has sent it.
async fn is_right(exporter: &Exporter, standin: &Standin) {
    let expected = {
        let world = standin.world();
        let events = world.counts().into_iter();
        let events = events.map(|((kind, user), n)| (vec![kind.to_owned(), actor(user)], n as f64));
        let mut tickets: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for ticket in &world.tickets {
            let labels = [ticket.state, ticket.kind].map(str::to_owned);
            *tickets.entry(labels.to_vec()).or_default() += 1.0;
        }
        (events.collect(), tickets, [0.0, 0.0, 0.0, 1.0])
    };
    until_ok(async || {
        let scrape = exporter.scrape().await;
        let shown = (scrape.events(), tickets(&scrape), others(&scrape));
        let is_so = shown == expected;
        is_so
            .then_some(())
            .ok_or_else(|| format!("{expected:?}\nand not\n{shown:?}"))
    })
    .await;
}

fn tickets(scrape: &Scrape) -> BTreeMap<Vec<String>, f64> {
    let tickets = scrape.series("orgdata_tickets");
    tickets.filter(|(_, count)| *count > 0.0).collect()
}

fn others(scrape: &Scrape) -> [f64; 4] {
    let names = [
        "orgdata_audit_gaps_total",
        "orgdata_audit_entries_backdated_total",
        "orgdata_otlp_backlog_records",
        "orgdata_tickets_snapshot_consistent",
    ];
    names.map(|name| scrape.sum(name))
}

/// Asserts that there is a record of each of these entries and of no other one, and that only those of one request came twice: the one that
/// the killed exporter had sent last.
fn is_delivered(peer: &Peer, ids: impl Iterator<Item = String>) {
    let again = assert_complete(ids, &peer.taken_ids());
    let has_all = |request: &Vec<String>| again.keys().all(|id| request.contains(id));
    let is_one = again.is_empty() || peer.requests().iter().any(has_all);
    assert!(is_one, "came again: {again:?}");
}
