//! A collector that accepts, loses its answers, rejects, hangs and comes back, and knows which records it may not get again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use otlp_logs::{Export, Reason, Rejection, Verdict};
use prost::Message as _;
use tokio::time::sleep;

use super::plan::spread;
use super::world::{State, World};

/// The names of the records that are no entries.
const GAP: &str = "orgdata.exporter.gap";
const CHECKPOINT: &str = "orgdata.exporter.checkpoint";
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Collector {
    rng: Rng,
    /// Records that it never accepts.
    pub(super) poison: HashSet<String>,
    /// It fails until then, in this way.
    fails: (Duration, u8),
    requests: u64,
    /// The last request with records in each life.
    last: HashMap<u32, u64>,
    sent: HashMap<String, Sent>,
    pub(super) taken: HashMap<String, u32>,
    /// The newest creation of what was taken in its order.
    pub(super) newest: Option<Timestamp>,
    pub(super) gaps: HashSet<String>,
    /// The number of each record that was taken, the last request that had it, and its id.
    pub(super) numbers: HashMap<i64, (u64, String)>,
    /// Records that may be dead letters: refused alone, or in a request of which some were rejected.
    pub(super) refused: HashSet<String>,
    pub(super) partly: HashSet<String>,
}

/// The last time that a record was taken.
#[derive(Clone, Copy)]
struct Sent {
    request: u64,
    life: u32,
    /// The exporter had the answer.
    answered: bool,
}

/// How much was delivered when a copy of the file was made.
pub(super) struct Delivered {
    requests: u64,
    gaps: HashSet<String>,
}

/// The exporter's side of it.
pub(super) struct Sender(pub(super) Arc<World>);

/// What the collector does with a request.
struct Deed {
    takes: bool,
    verdict: Verdict,
    wait: Duration,
}

impl Collector {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            ..Self::default()
        }
    }

    pub(super) fn fail(&mut self, until: Duration, kind: u8) {
        self.fails = (until, kind);
    }

    /// Returns whether a record was taken before, or may have become a dead letter, which is replayed at any time.
    pub(super) fn came_before(&self, id: &str) -> bool {
        self.taken.contains_key(id) || self.refused.contains(id) || self.partly.contains(id)
    }

    pub(super) fn delivered(&self) -> Delivered {
        Delivered {
            requests: self.requests,
            gaps: self.gaps.clone(),
        }
    }

    /// The exporter has an older copy of its file: what came since may come again.
    pub(super) fn forget_since(&mut self, delivered: &Delivered) {
        self.sent
            .retain(|_, sent| sent.request <= delivered.requests);
        self.gaps.clone_from(&delivered.gaps);
        self.numbers
            .retain(|_, (request, _)| *request <= delivered.requests);
    }

    /// Records with these numbers and ids are taken; returns whether one has the number of another.
    fn number(&mut self, numbers: Vec<(i64, String)>) -> Result<(), String> {
        for (number, id) in numbers {
            let first = self.numbers.entry(number);
            let (_, first) = first.or_insert((self.requests, id.clone()));
            if *first != id {
                return Err(format!("{first} and {id} have the number {number}"));
            }
        }
        Ok(())
    }

    /// A request came; returns why it must not have come.
    fn came(&mut self, ids: &[String], life: u32) -> Result<(), String> {
        self.requests += 1;
        let distinct: HashSet<&String> = ids.iter().collect();
        if distinct.len() < ids.len() {
            return Err("a request has a record twice".to_owned());
        }
        for id in ids {
            let Some(sent) = self.sent.get(id) else {
                continue;
            };
            // A crash between the answer and its commit repeats one request. Records of a partial rejection are sent again if an operator
            // wants it.
            let is_last = sent.life < life && self.last.get(&sent.life) == Some(&sent.request);
            if sent.answered && !is_last && !self.partly.contains(id) {
                return Err(format!("{id} is sent again, but was acknowledged"));
            }
        }
        if !ids.is_empty() {
            self.last.insert(life, self.requests);
        }
        Ok(())
    }

    fn decide(
        &mut self,
        ids: &[String],
        bytes: usize,
        world: &World,
        state_now: Duration,
        calm: bool,
    ) -> Deed {
        use Reason as R;
        let rng = &mut self.rng;
        let mut deed = Deed {
            takes: true,
            verdict: Verdict::Accepted,
            wait: spread(rng, 1, world.plan.latency.as_millis() as u64 + 1),
        };
        let refusal = |reason| Rejection::new(reason, "simulated");
        let refused = |reason| Verdict::Rejected(refusal(reason));
        let mut refuse = |verdict| (deed.takes, deed.verdict) = (false, verdict);
        let is_down = state_now < self.fails.0;
        let kind = if is_down {
            self.fails.1 % 8
        } else if !calm && rng.f64() < world.plan.collector_trouble {
            rng.u8(0..16)
        } else {
            u8::MAX
        };
        match kind {
            0 => refuse(refused(R::Connect)),
            1 => refuse(refused(R::Unauthorized)),
            2 => refuse(Verdict::Rejected(Rejection {
                retry_after: Some(spread(rng, 1, 600_000)),
                ..refusal(R::Unavailable)
            })),
            3 => {
                refuse(refused(R::Timeout));
                deed.wait = TIMEOUT;
            }
            4 => refuse(refused(R::ServerError)),
            5 => refuse(refused(R::BadRecord)),
            6 => refuse(refused(R::RateLimited)),
            // It has the records, and the answer does not arrive.
            7 => {
                (deed.verdict, deed.wait) = (refused(R::Timeout), TIMEOUT);
            }
            8..12 => deed.verdict = refused(R::Connect),
            12 if !ids.is_empty() => {
                deed.verdict = Verdict::PartlyRejected {
                    rejected: rng.u64(1..=ids.len() as u64),
                    message: "simulated".to_owned(),
                };
            }
            _ => {}
        }
        // These it always finds first, if it answers at all.
        let reason = deed.verdict.reason();
        let answers = reason.is_none_or(R::is_about_records);
        if answers && (bytes > world.plan.most_bytes || ids.len() > world.plan.most_records) {
            (deed.takes, deed.verdict) = (false, refused(R::TooLarge));
        } else if answers && ids.iter().any(|id| self.poison.contains(id)) {
            (deed.takes, deed.verdict) = (false, refused(R::BadRecord));
        }
        deed
    }

    /// The exporter gets the answer.
    fn answered(&mut self, ids: &[String], deed: &Deed) {
        match &deed.verdict {
            Verdict::Accepted => {
                for id in ids {
                    self.sent.get_mut(id).expect("taken").answered = true;
                }
            }
            Verdict::PartlyRejected { .. } => self.partly.extend(ids.iter().cloned()),
            Verdict::Rejected(refusal) if refusal.reason.is_about_records() && ids.len() == 1 => {
                self.refused.insert(ids[0].clone());
            }
            _ => {}
        }
    }
}

impl Export for Sender {
    async fn export(&self, request: ExportLogsServiceRequest) -> Verdict {
        let world = &self.0;
        world.pass().await;
        let bytes = request.encoded_len();
        let (ids, gaps, numbers) = ids(request);
        let deed = {
            let state = &mut *world.state();
            let (now, life, calm) = (state.now(), state.life, state.calm_at.is_some());
            // History may come again after a lost cursor.
            let is_old = |id: &String| state.rows.iter().any(|row| row.id == *id && !row.fate.live);
            let once: Vec<String> = ids.iter().filter(|id| !is_old(id)).cloned().collect();
            if let Err(failure) = state.collector.came(&once, life) {
                world.fail(state, failure);
            }
            let newest = world.check_order(state, &ids);
            let deed = state.collector.decide(&ids, bytes, world, now, calm);
            if deed.takes {
                match newest {
                    Ok(newest) => state.collector.newest = newest,
                    Err(failure) => world.fail(state, failure),
                }
                take(state, &ids, life);
                if let Err(failure) = state.collector.number(numbers) {
                    world.fail(state, failure);
                }
                state.collector.gaps.extend(gaps);
            }
            let verdict = deed.verdict.reason().map_or("ok", Into::into);
            state.note(
                &format!("send {ids:?} {verdict}"),
                ids.len() as u64,
                u64::from(deed.takes),
            );
            deed
        };
        sleep(deed.wait).await;
        world.pass().await;
        world.state().collector.answered(&ids, &deed);
        deed.verdict
    }
}

fn take(state: &mut State, ids: &[String], life: u32) {
    let collector = &mut state.collector;
    for id in ids {
        *collector.taken.entry(id.clone()).or_default() += 1;
        let sent = Sent {
            request: collector.requests,
            life,
            answered: false,
        };
        collector.sent.insert(id.clone(), sent);
    }
}

/// Returns the ids of the entries of a request, those of the gaps, which are random, and the number of each record, also of checkpoints.
fn ids(request: ExportLogsServiceRequest) -> (Vec<String>, Vec<String>, Vec<(i64, String)>) {
    let scopes = request.resource_logs.into_iter().flat_map(|r| r.scope_logs);
    let (mut entries, mut gaps, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for record in scopes.flat_map(|scope| scope.log_records) {
        let value = |key: &str| {
            let mut attributes = record.attributes.iter();
            attributes
                .find(|attribute| attribute.key == key)?
                .value
                .clone()?
                .value
        };
        let Some(Value::StringValue(id)) = value("log.record.uid") else {
            continue;
        };
        if let Some(Value::IntValue(number)) = value("orgdata.record.sequence") {
            numbers.push((number, id.clone()));
        }
        match &*record.event_name {
            GAP => gaps.push(id),
            CHECKPOINT => {}
            _ => entries.push(id),
        }
    }
    (entries, gaps, numbers)
}
