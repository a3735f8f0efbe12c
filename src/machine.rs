//! What a simulation of the program puts in the place of the machine that it runs on.
//!
//! | of the program | in a simulation |
//! |---|---|
//! | clock, threads and disk | a [`Machine`] of its own, in [`LedgerOptions::machine`](crate::ledger::LedgerOptions) |
//! | API client | [`Client::simulated`](orgdata_api::Client::simulated), which sends nothing |
//! | sender to the collector | its own [`Export`](otlp_logs::Export) |
//! | start, stop and restart | [`LedgerHandle::open`](crate::ledger::LedgerHandle::open), then [`Parts::run`](crate::app::Parts::run) with these, in a runtime whose clock is paused |
//!
//! What it judges by is what anybody sees: the state file, `/metrics`, and the requests that come out.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The clock of a process, its threads for calls that block, and its disk.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Returns the present.
    fn now(&self) -> Timestamp;

    /// Starts a call that blocks, such as one of SQLite. It runs to its end even if the handle is dropped.
    fn start(self: Arc<Self>, call: Box<dyn FnOnce() + Send>) -> JoinHandle<()>;

    /// The ledger is about to use the state file by this connection. A simulation can make the disk behind it fill up or fail.
    fn before_use(&self, _file: &mut Connection) {}
}

/// The machine that the program runs on.
#[derive(Debug)]
pub struct ThisMachine;

/// Makes a call that blocks, and waits for it. The error says that it panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    machine: Arc<dyn Machine>,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, mut value) = oneshot::channel();
    // It is not waited for any more if the caller was dropped.
    let ended = machine.start(Box::new(move || drop(sender.send(call()))));
    ended.await.map_err(|error| error.to_string())?;
    value.try_recv().map_err(|error| error.to_string())
}

// === impl ThisMachine ===

impl Machine for ThisMachine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn start(self: Arc<Self>, call: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
        tokio::task::spawn_blocking(call)
    }
}
