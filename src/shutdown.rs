//! Signals: the first one stops the program in order, the second one at once.

use tokio_util::sync::CancellationToken;

/// Cancelled by SIGTERM or SIGINT; another one of them ends the process with status 1. Call it inside the runtime.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        signal().await;
        stop.cancel();
        signal().await;
        tracing::warn!("a second signal: ending at once");
        std::process::exit(1);
    });
    token
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "cannot listen for signals; the program ends only when it is killed");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
