//! The ticket scan through its public surface: scripted pages, changes between any two requests, and a real socket.

mod flow;
mod meaning;
mod properties;
mod publishing;
mod servers;
mod support;
