//! The built binary as its users meet it: wrong settings, keys, state files, signals, the demo, and a service that is not well.

mod commands;
mod demo;
mod hostile;
mod key;
mod output;
mod process;
mod settings;
mod state;
mod upstream;
