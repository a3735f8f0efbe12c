//! The built binary as its users meet it: wrong settings, keys, state files, signals, the demo, and a service that is not well.

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/http_peer.rs"]
mod http_peer;

mod commands;
mod demo;
mod hostile;
mod key;
mod output;
mod process;
mod settings;
mod state;
mod upstream;
