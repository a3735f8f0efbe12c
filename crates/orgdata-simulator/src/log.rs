//! The requests to the two listings: counters, and the last ones with their queries.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;

use crate::fault::Endpoint;
use crate::query::Query;

/// A request, as a hook and the log see it.
#[derive(Clone, Debug, Serialize)]
pub struct RequestInfo {
    /// The number of the request, from 1.
    pub number: u64,
    /// The listing that was requested.
    pub endpoint: Endpoint,
    /// The query as it came, without the question mark.
    pub raw_query: String,
    /// The decoded parameters, in order.
    #[serde(skip)]
    pub query: Vec<(String, String)>,
    /// The time of the request by the simulator's clock.
    pub at: Timestamp,
    /// The status of the response; `None` until it is known, or if there was no response.
    pub status: Option<u16>,
}

/// The requests so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Requests {
    /// The number of requests to the audit log listing.
    pub audit: u64,
    /// The number of requests to the ticket listing.
    pub tickets: u64,
    /// The number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The last requests, oldest first.
    pub last: Vec<RequestInfo>,
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Returns the first value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn new(endpoint: Endpoint, number: u64, raw_query: &str, at: Timestamp) -> Self {
        Self {
            number,
            endpoint,
            raw_query: raw_query.to_owned(),
            query: Query::parse(raw_query).0,
            at,
            status: None,
        }
    }
}

// === impl Requests ===

impl Requests {
    /// Counts a request, and keeps it and the last ones before it.
    pub(crate) fn add(&mut self, info: RequestInfo, keep: usize) {
        match info.endpoint {
            Endpoint::Audit => self.audit += 1,
            Endpoint::Tickets => self.tickets += 1,
        }
        self.last.push(info);
        let excess = self.last.len().saturating_sub(keep);
        self.last.drain(..excess);
    }

    /// Counts a response.
    pub(crate) fn answered(&mut self, number: u64, status: StatusCode) {
        let status = status.as_u16();
        *self.statuses.entry(status).or_default() += 1;
        if let Some(info) = self.last.iter_mut().find(|info| info.number == number) {
            info.status = Some(status);
        }
    }
}
