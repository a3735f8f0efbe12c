//! Signals: the first SIGTERM or SIGINT stops the program in order, a second one at once, and SIGHUP reloads files.

use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Some tools send a signal to the process and to its group (`timeout` does). A second one within this time is ignored.
const ECHO: Duration = Duration::from_millis(300);

/// The signals that end the program.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

/// The signals that end the program.
#[cfg(not(unix))]
struct Signals;

/// Returns a token that SIGTERM or SIGINT cancels; another one of them ends the process with status 1. No signal is lost
/// after it returns. Call it inside the runtime.
pub fn on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    match Signals::listen() {
        Ok(mut signals) => drop(tokio::spawn(async move {
            signals.next().await;
            stop.cancel();
            tokio::time::sleep(ECHO).await;
            // A new listener does not see the signals of the meantime.
            if let Ok(mut signals) = Signals::listen() {
                signals.next().await;
                tracing::warn!("second signal: exiting at once");
                std::process::exit(1);
            }
        })),
        Err(error) => {
            tracing::warn!(%error, "cannot listen for signals; only SIGKILL ends the program");
        }
    }
    token
}

/// Calls `reload` on SIGHUP, which then does not end the process. Call it inside the runtime.
#[cfg(unix)]
pub fn on_hangup(reload: impl Fn() + Clone + Send + 'static) {
    use tokio::signal::unix::{SignalKind, signal};
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

/// Does nothing: there is no SIGHUP.
#[cfg(not(unix))]
pub fn on_hangup(_: impl Fn() + Clone + Send + 'static) {}

// === impl Signals ===

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
