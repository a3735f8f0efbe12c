//! The targets of `fuzz/` with its corpus and with seeded changes of it, the same in each run. `FUZZ_SECONDS` plays others for this time each;
//! `FUZZ_SEED` begins with the change whose seed a failure shows.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::support::files;
use targets::TARGETS;

#[path = "../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is the library of `fuzz/` too")]
mod targets;

/// The number of changes for each target, if no time is given.
const CHANGES: u64 = 1_000;

/// What is worth inserting anywhere, as a list in JSON.
const TOKENS: &str = include_str!("../../fuzz/tokens.json");

#[test]
fn no_input_from_outside_breaks_a_promise() {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect(name));
    let limit = number("FUZZ_SECONDS").map(Duration::from_secs);
    let random = |_| fastrand::u64(..u64::MAX / 2);
    let first = number("FUZZ_SEED").or_else(|| limit.map(random));
    let first = first.unwrap_or_default();
    let tokens: Vec<String> = serde_json::from_str(TOKENS).unwrap();
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        let check = |input: &[u8], what: &str| {
            let failed = catch_unwind(|| target(input)).is_err();
            let text = String::from_utf8_lossy(input);
            assert!(!failed, "{name}: {what}: {text:?}");
        };
        for (file, input) in &corpus {
            check(input, file);
        }
        let began = Instant::now();
        let more = |seed: &u64| match limit {
            None => *seed < first + CHANGES,
            Some(limit) => began.elapsed() < limit,
        };
        for seed in (first..).take_while(more) {
            let input = changed(&corpus, &tokens, &mut Rng::with_seed(seed));
            check(&input, &format!("FUZZ_SEED={seed}"));
        }
    }
}

/// Returns the files of the corpus of a target.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = format!("fuzz/corpus/{target}");
    let names = files::names(&directory).into_iter();
    let read = |name| std::fs::read(files::path(&format!("{directory}/{name}"))).unwrap();
    names.map(|name| (name.clone(), read(name))).collect()
}

/// Returns a file of the corpus with a few changes.
fn changed(corpus: &[(String, Vec<u8>)], tokens: &[String], random: &mut Rng) -> Vec<u8> {
    let (_, mut input) = random.choice(corpus).expect("there is a corpus").clone();
    for _ in 0..random.usize(1..8) {
        let start = random.usize(..=input.len());
        let end = input.len().min(start + random.usize(..64));
        match random.u8(..7) {
            0 if start < end => input[start] ^= 1 << random.u8(..8),
            1 if start < end => input[start] = random.u8(..),
            2 => drop(input.drain(start..end)),
            3 => {
                let (_, other) = random.choice(corpus).expect("there is a corpus");
                let from = random.usize(..=other.len());
                input.truncate(start);
                input.extend_from_slice(&other[from..]);
            }
            4 if input.len() < 20_000 => {
                let part = input[start..end].repeat(random.usize(1..40));
                input.splice(start..start, part);
            }
            _ => {
                let token = random.choice(tokens).expect("there are tokens");
                let end = if random.bool() { start } else { end };
                input.splice(start..end, token.bytes());
            }
        }
    }
    input
}
