//! What happens in the organization of a stand-in, and the server that tells of it as a reading of the contract has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use url::Url;

use crate::support::binary::KEY;
use crate::support::http_peer::{Peer, Reply, SeenRequest, answer};

const TYPES: [&str; 4] = [
    "DEAL_CREATED",
    "user.invited",
    "Treffen – übernommen",
    "task/closed",
];
const USERS: [Option<i64>; 5] = [None, Some(1), Some(42), Some(1_000_000_007), Some(-3)];
const TICKET_TYPES: [&str; 3] = ["BUG", "FEATURE_REQUEST", "Question"];
const TICKET_STATES: [&str; 3] = ["OPEN", "IN_PROGRESS", "CLOSED"];

/// How an answer fails, and the most times that it does so in a row.
const FAILURES: [(&str, usize); 5] = [
    ("401 Unauthorized", 4),
    ("429 Too Many Requests", 1),
    ("500 Internal Server Error", 3),
    ("502 Bad Gateway", 1),
    ("503 Service Unavailable", 2),
];

/// The most steps between writing an entry and committing it.
const LATENESS: usize = 12;

/// The most milliseconds by which the clocks of those who write are behind.
const SKEW: i64 = 2000;

/// An audit log entry.
pub(super) struct Row {
    /// Its place in the order in which entries were written, from 1.
    pub(super) number: u64,
    pub(super) id: String,
    kind: &'static str,
    pub(super) actor: Option<i64>,
    pub(super) created: Timestamp,
    /// The step from which on it can be read.
    committed: usize,
    /// It was written after the script began.
    is_live: bool,
}

pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) kind: &'static str,
    pub(super) state: &'static str,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
}

/// An organization. Once its script has begun, each request for audit logs is a step of it.
pub(super) struct World {
    rng: fastrand::Rng,
    pub(super) step: usize,
    /// How many steps the script has.
    steps: usize,
    has_begun: bool,
    /// The number of the last row or ticket.
    last: u64,
    rows: Vec<Row>,
    pub(super) tickets: Vec<Ticket>,
    /// How far the clock of the server is behind.
    behind: SignedDuration,
    /// The status of answers instead of the right one, and how many more times.
    failure: Option<(&'static str, usize)>,
}

/// A page of the audit logs.
pub(super) struct Page<'a> {
    pub(super) items: Vec<&'a Row>,
    pub(super) start: Option<String>,
    pub(super) end: Option<String>,
    pub(super) has_previous: bool,
    pub(super) has_more: bool,
}

/// How a server reads what the contract leaves open.
pub(super) trait Reading: Send + 'static {
    /// Returns the newest page or the one before a cursor; nothing if it refuses the cursor.
    fn page<'a>(
        &mut self,
        world: &'a World,
        before: Option<&str>,
        limit: usize,
    ) -> Option<Page<'a>>;

    /// Changes an entry, which has what every server tells.
    fn tell(&self, world: &World, row: &Row, entry: &mut Value);

    /// Returns the tickets in their order.
    fn tickets(&self, world: &World) -> Vec<Value>;

    /// Returns the most that a page holds, whatever limit is asked for.
    fn most(&self) -> usize;

    /// Returns the `Date` of an answer.
    fn date(&mut self, now: Timestamp) -> Option<String>;
}

/// A server on loopback; it ends when this is dropped.
pub(super) struct Standin {
    world: Arc<Mutex<World>>,
    peer: Peer,
}

// === impl Standin ===

impl Standin {
    pub(super) async fn start(reading: impl Reading, seed: u64, steps: usize) -> Self {
        let world = Arc::new(Mutex::new(World::new(seed, steps)));
        let (shared, reading) = (Arc::clone(&world), Mutex::new(reading));
        let script = move |seen: &SeenRequest, _| {
            let mut world = shared.lock().unwrap();
            world.answer(&mut *reading.lock().unwrap(), seen)
        };
        Self {
            world,
            peer: Peer::start(script).await,
        }
    }

    pub(super) fn url(&self) -> String {
        self.peer.url()
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

// === impl World ===

impl World {
    fn new(seed: u64, steps: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let behind = rng.choice([0, 0, 50]).unwrap();
        let mut world = Self {
            rng,
            step: 0,
            steps,
            has_begun: false,
            last: 0,
            rows: Vec::new(),
            tickets: Vec::new(),
            behind: SignedDuration::from_mins(behind),
            failure: None,
        };
        // What is written within seconds of the first sync may be from before it, so nothing is.
        for age in (1..world.rng.i64(-10..40)).rev() {
            world.write(world.now() - SignedDuration::from_mins(7 * age));
        }
        for _ in 0..world.rng.usize(0..12) {
            world.change_tickets();
        }
        world
    }

    /// Begins the script: what is written from now on counts.
    pub(super) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// How many entries have to be counted, by type and user.
    pub(super) fn counts(&self) -> BTreeMap<(&'static str, Option<i64>), u64> {
        let mut counts = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.is_live) {
            *counts.entry((row.kind, row.actor)).or_default() += 1;
        }
        counts
    }

    /// The ids of the entries that have to be delivered.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        let live = self.rows.iter().filter(|row| row.is_live);
        live.map(|row| &row.id)
    }

    /// The entries that can be read, in the order in which they were written.
    pub(super) fn committed(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.iter().filter(|row| row.committed <= self.step)
    }

    /// Takes a step. After those of the script nothing happens.
    pub(super) fn advance(&mut self) {
        self.step += usize::from(self.has_begun);
        if !self.has_begun || self.step > self.steps {
            return;
        }
        let news = match self.rng.u8(0..12) {
            0..6 => 0,
            6..11 => self.rng.usize(1..4),
            _ => self.rng.usize(8..25),
        };
        for _ in 0..news {
            self.write(self.now());
        }
        if self.rng.u8(0..3) == 0 {
            self.change_tickets();
        }
        // The API deletes old entries. The oldest one stays: the exporter asks for a minute before it believes an empty page after `hasMore`.
        let is_old = self.rows.get(1).is_some_and(|row| !row.is_live);
        if is_old && self.rng.bool() {
            self.rows.remove(1);
        }
        if self.rng.u8(0..14) == 0 {
            let (status, most) = self.rng.choice(FAILURES).unwrap();
            self.failure = Some((status, self.rng.usize(1..=most)));
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::now() - self.behind
    }

    fn write(&mut self, at: Timestamp) {
        self.last += 1;
        let is_late = self.has_begun && self.rng.u8(0..4) == 0;
        let delay = self.rng.usize(0..=LATENESS) * usize::from(is_late);
        self.rows.push(Row {
            number: self.last,
            id: format!("{:016x}-{}", self.rng.u64(..), self.last),
            kind: self.rng.choice(TYPES).unwrap(),
            actor: self.rng.choice(USERS).unwrap(),
            created: at - SignedDuration::from_millis(self.rng.i64(0..SKEW)),
            committed: (self.step + delay).min(self.steps),
            is_live: self.has_begun,
        });
    }

    fn change_tickets(&mut self) {
        self.last += 1;
        let now = self.now();
        let place = self.rng.usize(0..=self.tickets.len());
        match (self.rng.u8(0..4), self.tickets.get_mut(place)) {
            (0, Some(_)) => drop(self.tickets.remove(place)),
            (1, Some(ticket)) => {
                ticket.state = self.rng.choice(TICKET_STATES).unwrap();
                ticket.updated = now;
            }
            _ => self.tickets.push(Ticket {
                id: self.last,
                kind: self.rng.choice(TICKET_TYPES).unwrap(),
                state: self.rng.choice(TICKET_STATES).unwrap(),
                created: now - SignedDuration::from_hours(self.rng.i64(0..500)),
                updated: now,
            }),
        }
    }

    fn answer(&mut self, reading: &mut impl Reading, seen: &SeenRequest) -> Reply {
        let url = Url::parse("http://here").unwrap();
        let url = url.join(seen.target()).unwrap();
        let is_audit = url.path() == "/v1/audit-logs";
        if is_audit {
            self.advance();
        }
        let has_key = seen.header("x-api-key") == Some(KEY);
        let (status, body) = if let Some((status, left)) = self.failure {
            self.failure = (left > 1).then_some((status, left - 1));
            (status, json!({"message": "no"}))
        } else if !has_key {
            ("401 Unauthorized", json!({"message": "no such key"}))
        } else {
            let page = match is_audit {
                true => self.audit_logs(reading, &url),
                false => self.ticket_page(reading, &url),
            };
            let page = page.map(|page| ("200 OK", page));
            page.unwrap_or_else(|path| {
                let issue = json!({"path": [path], "code": "custom", "message": "invalid"});
                let body = json!({"error": "Bad request", "issues": [issue]});
                ("400 Bad Request", body)
            })
        };
        let mut headers = vec!["Content-Type: application/json; charset=utf-8".to_owned()];
        headers.extend(
            status
                .starts_with("429")
                .then(|| "Retry-After: 1".to_owned()),
        );
        headers.extend(reading.date(self.now()).map(|date| format!("Date: {date}")));
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        answer(status, &headers, format!("{body:#}"))
    }

    /// The error is the parameter that is wrong.
    fn audit_logs(&self, reading: &mut impl Reading, url: &Url) -> Result<Value, String> {
        let (mut before, mut limit) = (None, 100);
        for (name, value) in url.query_pairs() {
            match &*name {
                "limit" => limit = read_limit(&value)?,
                "before" => before = Some(value.into_owned()),
                // Also `after`, which the exporter does not use.
                _ => return Err(name.into_owned()),
            }
        }
        let page = reading.page(self, before.as_deref(), limit.min(reading.most()));
        let page = page.ok_or("before")?;
        let entry = |row: &&Row| {
            let mut entry = row.entry();
            reading.tell(self, row, &mut entry);
            entry
        };
        let items: Vec<Value> = page.items.iter().map(entry).collect();
        Ok(json!({
            "hasMore": page.has_more, "hasPrevious": page.has_previous, "endCursor": page.end, "startCursor": page.start, "items": items,
        }))
    }

    fn ticket_page(&self, reading: &impl Reading, url: &Url) -> Result<Value, String> {
        let (mut limit, mut offset) = (100, 0);
        for (name, value) in url.query_pairs() {
            match &*name {
                "limit" => limit = read_limit(&value)?,
                "offset" => offset = value.parse().map_err(|_| "offset")?,
                _ => return Err(name.into_owned()),
            }
        }
        let limit = limit.min(reading.most());
        let tickets = reading.tickets(self).into_iter();
        let items: Vec<Value> = tickets.skip(offset).take(limit).collect();
        let total = self.tickets.len();
        Ok(json!({"items": items, "limit": limit, "offset": offset, "totalCount": total}))
    }
}

fn read_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok();
    let limit = limit.filter(|limit| (1..=1000).contains(limit));
    limit.ok_or_else(|| "limit".to_owned())
}

// === impl Row ===

impl Row {
    /// Returns what the contract requires; what may be null is.
    fn entry(&self) -> Value {
        let nullable = "dealId evaluationId targetUserId modifiedTargetUserId metadata organization evaluation deal \
            actorUser targetUser modifiedTargetUser task requirement meeting ticket teamRequest";
        let nulls = nullable
            .split_whitespace()
            .map(|name| (name.to_owned(), Value::Null));
        let mut entry = Value::Object(nulls.collect());
        entry["type"] = json!(self.kind);
        entry["id"] = json!(self.id);
        entry["organizationId"] = json!(7);
        entry["actorUserId"] = json!(self.actor);
        for name in ["occurredAt", "createdAt", "updatedAt"] {
            entry[name] = json!(self.created.to_string());
        }
        entry
    }
}
