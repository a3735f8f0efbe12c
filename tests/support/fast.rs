//! Hours in a moment, and real sockets all the same.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::time::Duration;

/// How much time passes between two looks at what there is to do.
const STEP: Duration = Duration::from_millis(10);

/// Runs a future to its end on a runtime whose clock is paused.
///
/// A paused clock that jumps to the next timer by itself does so while an answer is on its way, and every request would be too late. So it is
/// kept from that, and goes on in small steps.
pub(crate) async fn fast<F: Future>(future: F) -> F::Output {
    let (hold, held) = mpsc::channel::<()>();
    let held = tokio::task::spawn_blocking(move || held.recv());
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
