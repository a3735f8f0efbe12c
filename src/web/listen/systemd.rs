//! Sockets that systemd opened and hands over: `sd_listen_fds(3)`.

use std::sync::Arc;

use listenfd::ListenFd;

use super::Listener;
use super::unix::Socket;

/// Every socket that is handed to this process, whatever its name. They can be taken once.
pub(super) fn sockets() -> Result<Vec<Listener>, String> {
    // Variables that were meant for a parent say nothing about this process's descriptors.
    if std::env::var("LISTEN_PID")
        .ok()
        .and_then(|pid| pid.parse().ok())
        != Some(std::process::id())
    {
        return Err(
            "no sockets were handed to this process (LISTEN_PID is not its own)".to_owned(),
        );
    }
    let mut handed = ListenFd::from_env();
    if handed.len() == 0 {
        return Err(
            "no sockets were handed to this process (LISTEN_FDS is missing or 0)".to_owned(),
        );
    }
    (0..handed.len())
        .map(|index| {
            take(&mut handed, index)
                .map_err(|error| format!("socket {index} cannot be used: {error}"))
        })
        .collect()
}

fn take(handed: &mut ListenFd, index: usize) -> Result<Listener, String> {
    let gone = || "it was taken before".to_owned();
    if let Ok(listener) = handed.take_tcp_listener(index) {
        let listener = listener.ok_or_else(gone)?;
        listener
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        return Ok(Listener::Tcp(Arc::new(listener)));
    }
    let listener = handed
        .take_unix_listener(index)
        .map_err(|_| "it is neither a TCP nor a Unix stream socket".to_owned())?;
    let listener = listener.ok_or_else(gone)?;
    listener
        .set_nonblocking(true)
        .map_err(|error| error.to_string())?;
    Ok(Listener::Unix(Arc::new(Socket::inherited(listener))))
}
