//! Paused time with real sockets: hours pass in a moment.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The time that passes between two polls of the future.
const STEP: Duration = Duration::from_millis(10);

/// Keeps a paused clock from jumping to the next timer until the sender is dropped.
pub(crate) fn hold_clock(runtime: &Handle) -> (Sender<()>, JoinHandle<()>) {
    let (hold, held) = mpsc::channel::<()>();
    let held = runtime.spawn_blocking(move || {
        let _ = held.recv();
    });
    (hold, held)
}

/// Runs a future to its end on a runtime whose clock is paused.
///
/// A paused clock jumps to the next timer while an answer is on its way, so every request would time out. It is advanced in small steps
/// instead.
pub(crate) async fn fast<F: Future>(future: F) -> F::Output {
    let (hold, held) = hold_clock(&Handle::current());
    let mut future = pin!(future);
    let output = loop {
        tokio::select! {
            biased;
            output = &mut future => break output,
            () = tokio::time::advance(STEP) => {}
        }
    };
    drop(hold);
    let _ = held.await;
    output
}
