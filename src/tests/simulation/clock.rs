//! The clock and the calls of the disk in tests: those that a simulation sets on its thread, otherwise the machine's.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Makes each call that blocks, and says how long the disk takes before and after it.
pub(crate) trait Disk: Send + Sync {
    fn before(&self) -> Duration;
    fn make(&self, call: &mut dyn FnMut()) -> Duration;
}

thread_local! {
    static CLOCK: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
    static DISK: RefCell<Option<Arc<dyn Disk>>> = const { RefCell::new(None) };
}

/// From now on the clock of this thread shows `at` and follows the paused clock of the runtime; `None` ends the simulation.
pub(crate) fn set(clock: Option<Timestamp>, disk: Option<Arc<dyn Disk>>) {
    CLOCK.set(clock.map(|at| (Instant::now(), at)));
    DISK.set(disk);
}

pub(crate) fn now() -> Timestamp {
    simulated_now().unwrap_or_else(Timestamp::now)
}

pub(crate) fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    match DISK.with_borrow(Clone::clone) {
        Some(disk) => tokio::spawn(made_by(disk, call)),
        None => tokio::task::spawn_blocking(call),
    }
}

fn simulated_now() -> Option<Timestamp> {
    CLOCK.get().map(|(begun, at)| at + begun.elapsed())
}

async fn made_by<T>(disk: Arc<dyn Disk>, call: impl FnOnce() -> T) -> T {
    sleep(disk.before()).await;
    let (mut call, mut value) = (Some(call), None);
    let after = disk.make(&mut || value = call.take().map(|call| call()));
    sleep(after).await;
    value.expect("the call was made")
}
