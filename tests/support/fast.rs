//! Paused time with real sockets.

use std::sync::mpsc::{self, Sender};

use tokio::runtime::Handle;

/// Keeps a paused clock from jumping to the next timer until the sender is dropped.
pub(crate) fn hold_clock(runtime: &Handle) -> Sender<()> {
    let (hold, held) = mpsc::channel::<()>();
    runtime.spawn_blocking(move || {
        let _ = held.recv();
    });
    hold
}
