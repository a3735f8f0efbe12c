//! Hours in a moment, and real sockets all the same.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// How much time passes between two looks at what there is to do.
const STEP: Duration = Duration::from_millis(10);

/// Keeps a paused clock from jumping to the next timer by itself, for as long as the first of the two is there; the other then ends.
pub(crate) fn hold_clock(runtime: &Handle) -> (Sender<()>, JoinHandle<()>) {
    let (hold, held) = mpsc::channel::<()>();
    let held = runtime.spawn_blocking(move || {
        let _ = held.recv();
    });
    (hold, held)
}

/// Runs a future to its end on a runtime whose clock is paused.
///
/// A paused clock that jumps to the next timer by itself does so while an answer is on its way, and every request would be too late. So it is
/// kept from that, and goes on in small steps.
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
