//! Signals: the first one stops the program in order, the second one at once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::web::WebConfig;

/// Some tools send a signal twice, to the process and to its group (`timeout` does); so soon after the first one a second one is its echo.
const ECHO: Duration = Duration::from_millis(300);

/// Cancelled by SIGTERM or SIGINT; another one of them ends the process with status 1. Call it inside the runtime.
///
/// From the moment it returns, no signal is lost.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        stop.cancel();
        tokio::time::sleep(ECHO).await;
        Signals::listen().next().await;
        tracing::warn!("a second signal: ending at once");
        std::process::exit(1);
    });
    token
}

/// Reads files again on SIGHUP, which then does not end the process. Call it inside the runtime.
pub fn on_hangup(web: Option<WebConfig>) {
    #[cfg(not(unix))]
    drop(web);
    #[cfg(unix)]
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        Ok(mut hangups) => {
            tokio::spawn(async move {
                while hangups.recv().await.is_some() {
                    tracing::info!(
                        "SIGHUP: the web configuration is read again; the key file is read for every request in any case, all other files at the start alone"
                    );
                    if let Some(web) = web.clone() {
                        // A file system may hang.
                        let _ = tokio::task::spawn_blocking(move || web.reload()).await;
                    }
                }
            });
        }
        Err(error) => tracing::warn!(%error, "cannot listen for SIGHUP; it ends the program"),
    }
}

/// The signals that end the program.
#[cfg(unix)]
struct Signals(Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>);

/// The signals that end the program.
#[cfg(not(unix))]
struct Signals;

// === impl Signals ===

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        match (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) {
            (Ok(terminate), Ok(interrupt)) => Self(Some((terminate, interrupt))),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "cannot listen for signals; the program ends only when it is killed");
                Self(None)
            }
        }
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some((terminate, interrupt)) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            None => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
