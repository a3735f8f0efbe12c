//! The ticket scan through its public surface: scripted pages, changes between any two requests, and a real socket.

mod meaning;
mod properties;
mod publishing;
mod servers;
pub(crate) mod support;
