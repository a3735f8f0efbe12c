//! Everything between a socket and the axum [`Router`](axum::Router) of a Prometheus exporter.
//!
//! An exporter flattens [`WebArgs`] into its flags, reads the [web configuration file](WebConfig), [binds](bind) its
//! addresses, and [serves](serve) its router. README.md says what this protects against, and what belongs to a proxy.

mod args;
mod auth;
mod config;
mod file;
mod listen;
mod server;
mod tls;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use args::{WebArgs, listen_address};
pub use config::WebConfig;
pub use file::read_file;
pub use listen::{Bound, Limits, bind};
pub use server::serve;
pub use tls::validity;

/// Locks a mutex whose data is valid even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
