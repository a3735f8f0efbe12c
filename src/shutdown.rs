//! Signals: the first SIGTERM or SIGINT stops the program in order, a second one at once, SIGHUP reloads files, and SIGUSR1 and SIGUSR2 do nothing.

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
    let signals = signal(SignalKind::terminate());
    let signals = signals.and_then(|first| Ok((first, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => {
            tracing::warn!(%error, "cannot listen for signals; only SIGKILL ends the program");
            return token;
        }
    };
    // By default these signals end a process, but some people send them to make a program log more.
    for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        let _ = signal(kind);
    }
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        stop.cancel();
        let echoes = async {
            loop {
                next().await;
            }
        };
        let _ = tokio::time::timeout(ECHO, echoes).await;
        next().await;
        tracing::warn!("second signal: exiting at once");
        // The log line is written meanwhile.
        tokio::time::sleep(ECHO).await;
        std::process::exit(1);
    });
    token
}

/// Calls `reload` on SIGHUP, which then does not end the process. Call it inside the runtime.
pub fn on_hangup(reload: impl Fn() + Clone + Send + 'static) {
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => {
            tracing::warn!(%error, "cannot listen for SIGHUP; that signal will end the program");
            return;
        }
    };
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::info!("SIGHUP: reloading the web configuration");
            // A file system may hang.
            let _ = tokio::task::spawn_blocking(reload.clone()).await;
        }
    });
}
