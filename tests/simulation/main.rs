//! The whole exporter in one process and, for each history, in one thread: the service, the collector, the disk and the clock are simulated,
//! and one seed decides all that happens. Every request, commit and send may fail, hang, repeat or be the last before a crash.
//!
//! `world.rs` is what happens, `service.rs`, `collector.rs` and `disk.rs` are what the exporter talks to, in the places that
//! `orgdata_exporter::machine` lists, `run.rs` is its lives, and `truth.rs` says what must be true at every commit and in the end. `cargo test`
//! plays a few histories. To play more, from a random seed or `FIRST_SEED` on, for at most `MINUTES` in `THREADS`, or one of them with its
//! trace:
//!
//! ```text
//! SEEDS=1000000 cargo test --locked --release --test simulation -- --ignored --nocapture
//! SEED=123 cargo test --locked --release --test simulation -- --ignored --nocapture
//! ```
//!
//! A seed that failed is kept in `seeds.txt` with what was wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[allow(dead_code, reason = "each test program uses what it needs")]
#[path = "../support"]
mod support {
    pub(crate) mod scrape;
    pub(crate) mod settings;
}

mod collector;
mod disk;
mod plan;
mod run;
mod service;
mod truth;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use run::{Played, history};

/// Seeds that failed once.
const KEPT: &str = include_str!("seeds.txt");
/// How many of the first seeds `cargo test` plays.
const FEW: u64 = 12;
/// It says how far it is after each so many histories.
const SAID: u64 = 1000;
/// It ends after so many failures.
const FAILURES: usize = 20;

fn kept() -> Vec<u64> {
    let lines = KEPT.lines().filter(|line| !line.is_empty());
    let seed = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
    lines.map(seed).collect()
}

/// Plays a history; a panic is a failure too.
fn play(seed: u64) -> Result<Played, String> {
    let played = std::panic::catch_unwind(|| history(seed, false));
    played.unwrap_or_else(|_| Err(format!("seed {seed}: a panic, see above")))
}

/// Plays the histories of all seeds in some threads, and returns how many it played and what is wrong.
fn play_all(seeds: impl Iterator<Item = u64> + Send, threads: usize) -> (u64, Vec<String>) {
    let (seeds, failures) = (Mutex::new(seeds), Mutex::new(Vec::new()));
    let played = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failures.lock().unwrap().len() < FAILURES {
                    let seed = seeds.lock().unwrap().next();
                    let Some(seed) = seed else { return };
                    if let Err(failure) = play(seed) {
                        let again = format!("run it alone with SEED={seed}: {failure}");
                        println!("{again}");
                        failures.lock().unwrap().push(again);
                    }
                    let played = played.fetch_add(1, Ordering::Relaxed) + 1;
                    if played.is_multiple_of(SAID) {
                        println!("{played} histories");
                    }
                }
            });
        }
    });
    (played.into_inner(), failures.into_inner().unwrap())
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect(name))
}

#[test]
fn nothing_is_lost_or_counted_twice_in_any_history() {
    let seeds = kept().into_iter().chain(0..FEW);
    let (_, failures) = play_all(seeds, 2);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_seed_has_one_history() {
    for seed in 0..4 {
        let traces = [(); 2].map(|()| history(seed, false).map(|outcome| outcome.trace));
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}

#[test]
#[ignore = "a command, see above"]
fn many_histories() {
    if let Some(seed) = number("SEED") {
        let outcome = history(seed, true).unwrap();
        println!(
            "{} lives, {} commits, trace {:016x}",
            outcome.lives, outcome.commits, outcome.trace
        );
        return;
    }
    let count = number("SEEDS").unwrap_or(10_000);
    let first = number("FIRST_SEED").unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let limit = number("MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let threads = number("THREADS").map_or(2, |threads| threads as usize);
    let begun = Instant::now();
    println!("{count} seeds from {first} on, in {threads} threads");
    let is_time = |_: &u64| limit.is_none_or(|limit| begun.elapsed() < limit);
    let seeds = (first..first + count).take_while(is_time);
    let (played, failures) = play_all(seeds, threads);
    let rate = played as f64 / begun.elapsed().as_secs_f64();
    println!("{played} seeds, {rate:.1} seeds per second");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
