//! As long as the service keeps what it has, everything is delivered and counted exactly once, and the ledger never has a hole. What it
//! loses before it was read is a gap, and nothing else changes.

use std::future::Future;
use std::path::PathBuf;

use super::bench::Bench;
use super::case::{Case, forgetful, honest};
use crate::support::cases::check;

/// Runs one future to its end. Commits have one thread, so that they are done in the order they were asked for; and the clock stands still
/// but for waits, so that these take no time.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).max_blocking_threads(1).build().unwrap();
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// Goes through a case; in the end, and at every step, what the exporter shows is the truth, and nothing new costs one request.
pub(super) fn everything_is_exact(case: &Case) {
    block_on(async {
        let mut bench = go_through(case, None).await;
        // A page full of entries from the future hides what is below it.
        if !case.has_future() {
            bench.check_quiet().await;
        }
        bench.stop().await;
    });
}

/// The same, where looking for something new may cost more.
pub(super) fn everything_is_delivered(case: &Case) {
    block_on(async { go_through(case, None).await.stop().await });
}

async fn go_through(case: &Case, path: Option<PathBuf>) -> Bench {
    let mut bench = Bench::new(case, path).await;
    for step in &case.steps {
        bench.step(step).await;
    }
    bench.check_all().await;
    bench
}

#[test]
fn everything_is_delivered_and_counted_once() {
    let name = "everything_is_delivered_and_counted_once";
    check(name, 600, &honest(), everything_is_exact);
}

/// The same with a state file that is opened anew, and that fails at any statement of a commit.
#[test]
fn nothing_moves_before_it_is_on_disk() {
    let name = "nothing_moves_before_it_is_on_disk";
    check(name, 250, &honest(), |case| {
        // In memory if possible: a process that dies needs no disk, only a power cut does.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.unwrap();
        let path = Some(directory.path().join("state.db"));
        block_on(async { go_through(case, path).await.stop().await });
    });
}

#[test]
fn what_the_service_loses_is_reported_and_the_rest_is_exact() {
    let name = "what_the_service_loses_is_reported_and_the_rest_is_exact";
    check(name, 400, &forgetful(), |case| {
        block_on(async {
            let mut bench = Bench::new(case, None).await;
            bench.lossy = true;
            for step in &case.steps {
                bench.step(step).await;
            }
            bench.check_rest().await;
            bench.stop().await;
        });
    });
}
