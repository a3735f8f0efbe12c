//! What was asked of the simulator: counters, and the last requests with their queries.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::Serialize;

use super::fault::Endpoint;

/// A request, as a hook and the log see it.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Number of the request, from 1.
    pub number: u64,
    /// The listing it asks for.
    pub endpoint: Endpoint,
    /// The query as it came, without the question mark.
    pub raw_query: String,
    /// The parameters, decoded, in order.
    pub query: Vec<(String, String)>,
    /// When it came, by the simulator's clock.
    pub at: Timestamp,
    /// The status that answered it; `None` while it is being answered, or when there was no answer.
    pub status: Option<u16>,
}

/// Requests so far.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// All requests to the audit log listing.
    pub audit: u64,
    /// All requests to the ticket listing.
    pub tickets: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The last requests, oldest first.
    pub last: Vec<RequestInfo>,
}

/// Counts requests and keeps the last ones.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    keep: usize,
    next: u64,
    audit: u64,
    tickets: u64,
    statuses: BTreeMap<u16, u64>,
    last: VecDeque<RequestInfo>,
}

// === impl RequestInfo ===

impl RequestInfo {
    /// The first value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }
}

/// The JSON of the control endpoint.
impl Serialize for RequestInfo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut object = serializer.serialize_struct("RequestInfo", 5)?;
        object.serialize_field("number", &self.number)?;
        object.serialize_field("endpoint", &self.endpoint.to_string())?;
        object.serialize_field("query", &self.raw_query)?;
        object.serialize_field("at", &format!("{:.3}", self.at))?;
        object.serialize_field("status", &self.status)?;
        object.end()
    }
}

// === impl RequestLog ===

impl RequestLog {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// Takes note of a request that came.
    pub(super) fn came(
        &mut self,
        endpoint: Endpoint,
        raw_query: &str,
        query: &[(String, String)],
        at: Timestamp,
    ) -> RequestInfo {
        self.next += 1;
        match endpoint {
            Endpoint::Audit => self.audit += 1,
            Endpoint::Tickets => self.tickets += 1,
        }
        let (raw_query, query) = (raw_query.to_owned(), query.to_vec());
        let info = RequestInfo {
            number: self.next,
            endpoint,
            raw_query,
            query,
            at,
            status: None,
        };
        self.last.push_back(info.clone());
        while self.last.len() > self.keep {
            self.last.pop_front();
        }
        info
    }

    /// Takes note of its answer.
    pub(super) fn answered(&mut self, number: u64, status: u16) {
        *self.statuses.entry(status).or_default() += 1;
        if let Some(info) = self
            .last
            .iter_mut()
            .rev()
            .find(|info| info.number == number)
        {
            info.status = Some(status);
        }
    }

    pub(super) fn requests(&self) -> Requests {
        Requests {
            audit: self.audit,
            tickets: self.tickets,
            statuses: self.statuses.clone(),
            last: self.last.iter().cloned().collect(),
        }
    }

    /// Forgets everything but the running number.
    pub(super) fn clear(&mut self) {
        *self = Self {
            keep: self.keep,
            next: self.next,
            ..Self::default()
        };
    }
}
