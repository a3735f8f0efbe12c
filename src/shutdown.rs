//! Signals: the first SIGTERM or SIGINT stops the program in order, a second one at once, and SIGHUP reloads files.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Some tools send a signal to the process and to its group (`timeout` does). A second one within this time is ignored.
const ECHO: Duration = Duration::from_millis(300);

/// Returns a token that SIGTERM or SIGINT cancels; another one of them ends the process with status 1. No signal is lost
/// after it returns. Call it inside the runtime.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    match next_signal() {
        Ok(first) => drop(tokio::spawn(async move {
            first.await;
            stop.cancel();
            tokio::time::sleep(ECHO).await;
            // A new listener does not see the signals of the meantime.
            if let Ok(second) = next_signal() {
                second.await;
                tracing::warn!("second signal: exiting at once");
                // The line is written meanwhile.
                tokio::time::sleep(ECHO).await;
                std::process::exit(1);
            }
        })),
        Err(error) => {
            tracing::warn!(%error, "cannot listen for signals; only SIGKILL ends the program");
        }
    }
    token
}

/// Waits for a signal that ends the program, from the call on.
fn next_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Calls `reload` on SIGHUP, which then does not end the process. Call it inside the runtime.
pub fn on_hangup(reload: impl Fn() + Clone + Send + 'static) {
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => {
            tracing::warn!(%error, "cannot listen for SIGHUP; it ends the program");
            return;
        }
    };
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::info!(
                "SIGHUP: reloading the web configuration; the key file is read for every request, and other files only at start"
            );
            // A file system may hang.
            let _ = tokio::task::spawn_blocking(reload.clone()).await;
        }
    });
}
