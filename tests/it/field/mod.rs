//! What happens in the field, one file for each rule: connections that go silent, names that move, certificates that are replaced.

mod allowances;
mod answers;
mod connections;
mod offsets;
mod organizations;
mod peers;
mod proxies;
mod tls_errors;
