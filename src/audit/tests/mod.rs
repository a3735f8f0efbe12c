//! The tail and the ledger under random histories, readings of the specification, changes between any two requests, faults and deaths:
//! what they deliver and count is what happened, no more and no less.

mod bench;
mod case;
mod exact;
mod found;
mod truth;
mod world;
