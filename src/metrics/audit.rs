//! Audit events as the ledger has committed them; each series shows its value from before it rose first, so that `increase()` sees the rise.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::Recent;
use crate::ledger::{Direction, TraceContext, WalkKind};

/// Upper bounds of `orgdata_audit_event_delay_seconds`, in seconds: from a quick poll to a day's outage.
const DELAY_BUCKETS: [f64; 12] = [
    1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0,
];

/// How many series a scrape writes before it lets the tail go on: some 50 microseconds.
const AT_ONCE: usize = 256;

/// A counter of the ledger without labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Entries found behind the frontier.
    Late,
    /// Entries served again.
    Duplicate,
    /// Entries that break the contract.
    Malformed,
    /// Events counted under `other`.
    Folded,
    /// Times the cursor was at fault.
    Recoveries,
    /// Holes that cannot be filled.
    Gaps,
}

/// The label set of an event counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventLabels {
    /// The activity type.
    pub activity_type: Arc<str>,
    /// The actor as `--metrics.actor-label` shows it; `None` where it shows none.
    pub actor: Option<Arc<str>>,
}

/// What one transaction changed, told after it is on disk.
#[derive(Debug, Default)]
pub struct Delta {
    /// Label sets and the values they had before this transaction, where they were not shown yet.
    pub introduced: Vec<(EventLabels, u64)>,
    /// What the ledger held beyond the introduced value when this process began: an earlier process counted it and never showed it.
    pub held: Vec<(EventLabels, u64)>,
    /// Rises.
    pub events: Vec<(EventLabels, u64)>,
    /// Rises of the counters without labels.
    pub totals: Vec<(Total, u64)>,
    /// Actors and the names they have now.
    pub names: Vec<(Arc<str>, String)>,
    /// Actors that leave the exposition.
    pub retired: Vec<Arc<str>>,
    /// Creation time of the newest entry held.
    pub newest: Option<Timestamp>,
    /// Seconds from creation to counted, for live events.
    pub delays: Vec<f64>,
    /// The trace of the poll that brought it.
    pub trace: Option<TraceContext>,
}

/// The families `orgdata_audit_*`.
#[derive(Debug)]
pub struct AuditMetrics {
    zero_hold: Duration,
    delay: Histogram,
    recent: Recent,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    events: BTreeMap<EventLabels, Series>,
    totals: [Series; Total::ALL.len()],
    names: BTreeMap<Arc<str>, String>,
    /// Events counted under any label, also such as are shown no more.
    counted: u64,
    newest: Option<Timestamp>,
    walk: Option<(WalkKind, Direction, usize)>,
    paused: bool,
}

/// One counter: what the ledger holds, and what is shown. It is small, since a scrape goes through all of them.
#[derive(Clone, Debug)]
struct Series {
    total: u64,
    /// The value that the last scrape saw; the introduced one where there was none yet.
    last_shown: u64,
    /// Until the first scrape that shows it risen.
    young: Option<Box<Young>>,
    last_rise: Option<Box<Rise>>,
}

/// A counter that shows the value from before it rose.
#[derive(Clone, Copy, Debug)]
struct Young {
    /// The value it was introduced with in this process.
    introduced: u64,
    introduced_at: Instant,
    /// The first complete scrape that showed it.
    first_shown: Option<Instant>,
}

/// The last rise of a counter whose trace is known.
#[derive(Clone, Copy, Debug)]
struct Rise {
    by: u64,
    trace: TraceContext,
    at: SystemTime,
}

/// What a scrape sees of a counter.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    value: u64,
    /// Becomes the exemplar.
    last_rise: Option<&'a Rise>,
}

/// A counter that no scrape has seen in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// An event counter.
    Events(EventLabels),
    /// One without labels.
    Total(Total),
}

// === impl Total ===

impl Total {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Late,
        Self::Duplicate,
        Self::Malformed,
        Self::Folded,
        Self::Recoveries,
        Self::Gaps,
    ];

    /// Its name in the state file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Duplicate => "duplicate",
            Self::Malformed => "malformed",
            Self::Folded => "folded",
            Self::Recoveries => "recoveries",
            Self::Gaps => "gaps",
        }
    }

    fn family(self) -> (&'static str, &'static str) {
        match self {
            Self::Late => (
                "orgdata_audit_events_late",
                "Audit events that appeared behind newer ones and were found by the re-read; they are counted in orgdata_audit_events_total too.",
            ),
            Self::Duplicate => (
                "orgdata_audit_events_duplicate",
                "Audit log entries that the service sent again as new; dropped, not counted twice.",
            ),
            Self::Malformed => (
                "orgdata_audit_entries_malformed",
                "Audit log entries that break the documented contract; one with an id, a type and a time is counted as an event all the same, any other is a dead letter.",
            ),
            Self::Folded => (
                "orgdata_audit_actors_folded",
                "Audit events counted under the actor other because --metrics.max-actors was reached.",
            ),
            Self::Recoveries => (
                "orgdata_audit_cursor_recoveries",
                "Times that the service no longer took the cursor and the tail found its place again from the newest entries.",
            ),
            Self::Gaps => (
                "orgdata_audit_gaps",
                "Holes in the audit trail that could not be filled, because the service no longer has or cannot serve the entries.",
            ),
        }
    }
}

// === impl AuditMetrics ===

impl AuditMetrics {
    /// Empty families; `zero_hold` as `--metrics.zero-hold`: 0 shows every rise at once.
    pub fn new(zero_hold: Duration) -> Self {
        Self {
            zero_hold,
            delay: Histogram::new(DELAY_BUCKETS),
            recent: Recent::default(),
            table: Mutex::default(),
        }
    }

    /// Shows what a transaction changed. Only called when it is on disk.
    pub fn publish(&self, delta: Delta) {
        for seconds in &delta.delays {
            self.delay.observe(*seconds);
        }
        let counted = delta.events.iter().map(|(_, rise)| rise).sum();
        self.recent.record(counted);
        let mut table = self.lock();
        table.counted += counted;
        if !delta.retired.is_empty() {
            let retired: HashSet<Arc<str>> = delta.retired.into_iter().collect();
            table.events.retain(|labels, _| {
                labels
                    .actor
                    .as_ref()
                    .is_none_or(|actor| !retired.contains(actor))
            });
            table.names.retain(|actor, _| !retired.contains(actor));
        }
        if table.events.is_empty() {
            // Sorted and at once, as after a restart, the map takes half the memory. The first value of a label set is the one that counts.
            let introduced = delta.introduced.into_iter().rev();
            table.events = introduced
                .map(|(labels, value)| (labels, Series::introduced(value)))
                .collect();
        } else {
            for (labels, value) in delta.introduced {
                table
                    .events
                    .entry(labels)
                    .or_insert_with(|| Series::introduced(value));
            }
        }
        for (labels, rise) in delta.held {
            table.events.entry(labels).or_default().rise(rise, None);
        }
        for (labels, rise) in delta.events {
            table
                .events
                .entry(labels)
                .or_default()
                .rise(rise, delta.trace);
        }
        for (total, rise) in delta.totals {
            table.totals[total as usize].rise(rise, None);
        }
        table.names.extend(delta.names);
        table.newest = table.newest.max(delta.newest);
    }

    /// Sets a counter without labels to what an earlier process left, and showed.
    pub fn restore(&self, total: Total, value: u64, shown: u64) {
        self.lock().totals[total as usize] = Series {
            total: value,
            ..Series::introduced(shown.min(value))
        };
    }

    /// Notes that a scraper received a complete response whose encoding began at `began`.
    pub fn scraped(&self, began: Instant) {
        let mut table = self.lock();
        let Table { events, totals, .. } = &mut *table;
        let young = events
            .values_mut()
            .chain(totals)
            .filter_map(|series| series.young.as_mut());
        for young in young.filter(|young| young.introduced_at <= began) {
            young.first_shown.get_or_insert(began);
        }
    }

    /// Sets the number of all events to what the ledger holds.
    pub fn restore_counted(&self, counted: u64) {
        self.lock().counted = counted;
    }

    /// Events counted since the ledger was born, also those of actors that are shown no more.
    pub fn counted(&self) -> u64 {
        self.lock().counted
    }

    /// The counters that no scrape has seen in full, with the value that the last one saw. The next process begins with that one: under
    /// another instance label nobody would see the rise otherwise.
    pub fn held(&self) -> Vec<(Held, u64)> {
        let table = self.lock();
        let events = table
            .events
            .iter()
            .map(|(labels, series)| (Held::Events(labels.clone()), series));
        let totals = Total::ALL
            .into_iter()
            .map(|total| (Held::Total(total), &table.totals[total as usize]));
        events
            .chain(totals)
            .filter(|(_, series)| series.last_shown < series.total)
            .map(|(held, series)| (held, series.last_shown))
            .collect()
    }

    /// The walk under way, which way it goes, and its pages.
    pub fn walk(&self, walk: Option<(WalkKind, Direction, usize)>) {
        self.lock().walk = walk;
    }

    /// Whether a full ledger holds the tail.
    pub fn paused(&self, paused: bool) {
        self.lock().paused = paused;
    }

    /// Whether a full ledger holds the tail.
    pub fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// Every label set with its committed value, also what is held back from scrapes.
    pub fn events(&self) -> Vec<(EventLabels, u64)> {
        self.lock()
            .events
            .iter()
            .map(|(labels, series)| (labels.clone(), series.total))
            .collect()
    }

    /// The committed value of a counter without labels.
    pub fn total(&self, total: Total) -> u64 {
        self.lock().totals[total as usize].total
    }

    /// Events counted in each of the last minutes.
    pub fn per_minute(&self) -> Vec<u64> {
        self.recent.per_minute()
    }

    /// The walk under way, which way it goes, and its pages.
    pub fn current_walk(&self) -> Option<(WalkKind, Direction, usize)> {
        self.lock().walk
    }

    /// Actors and their names.
    pub fn names(&self) -> BTreeMap<Arc<str>, String> {
        self.lock().names.clone()
    }

    /// Creation time of the newest entry in the ledger.
    pub fn newest(&self) -> Option<Timestamp> {
        self.lock().newest
    }

    /// Writes the event counters a few at a time: nothing is copied, and the tail waits for a few of them at most.
    fn encode_events(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        now: Instant,
    ) -> Result<(), std::fmt::Error> {
        if self.lock().events.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "orgdata_audit_events",
            "Audit events since the state file was begun, by activity type and actor; history that was there before is not counted. \
             Read by the exporter's own loop, not by the scrape.",
            None,
            MetricType::Counter,
        )?;
        let mut written: Option<EventLabels> = None;
        loop {
            let mut table = self.lock();
            let after = written.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut rest = table
                .events
                .range_mut((after, Bound::Unbounded))
                .take(AT_ONCE)
                .peekable();
            if rest.peek().is_none() {
                return Ok(());
            }
            let mut last = None;
            for (labels, series) in rest {
                let shown = series.show(now, self.zero_hold);
                match &labels.actor {
                    Some(actor) => {
                        shown.encode(family.encode_family(&[
                            ("activity_type", &*labels.activity_type),
                            ("actor", &**actor),
                        ])?)?;
                    }
                    None => shown.encode(
                        family.encode_family(&[("activity_type", &*labels.activity_type)])?,
                    )?,
                }
                last = Some(labels);
            }
            written = last.cloned();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for AuditMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = Instant::now();
        self.encode_events(&mut encoder, now)?;
        let mut table = self.lock();
        let totals = Total::ALL.map(|total| {
            (
                total,
                table.totals[total as usize].show(now, self.zero_hold).value,
            )
        });
        let names = table.names.clone();
        let (newest, walk, paused) = (table.newest, table.walk, table.paused);
        drop(table);

        if !names.is_empty() {
            let mut family = encoder.encode_descriptor(
                "orgdata_audit_actor_info",
                "The name that belongs to an actor of orgdata_audit_events_total; always 1.",
                None,
                MetricType::Gauge,
            )?;
            for (actor, name) in &names {
                ConstGauge::new(1i64).encode(
                    family.encode_family(&[("actor", &**actor), ("name", name.as_str())])?,
                )?;
            }
        }
        for (total, value) in totals {
            let (name, help) = total.family();
            // Without an exemplar: after a sample without labels VictoriaMetrics takes its braces for the sample's own.
            ConstCounter::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        if let Some(newest) = newest {
            let help = "When the newest audit log entry in the ledger was created, in seconds since the epoch.";
            let family = encoder.encode_descriptor(
                "orgdata_audit_newest_event_timestamp_seconds",
                help,
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(newest.as_duration().as_secs_f64()).encode(family)?;
        }
        let help = "Time from the creation of an audit event (createdAt) to its being counted; only events that were read live.";
        self.delay.encode(encoder.encode_descriptor(
            "orgdata_audit_event_delay_seconds",
            help,
            None,
            MetricType::Histogram,
        )?)?;
        if let Some((kind, direction, pages)) = walk {
            let help = "Pages of the walk under way: passed so far on the way down, still to be taken on the way up; absent without a walk.";
            let mut family = encoder.encode_descriptor(
                "orgdata_audit_walk_pages",
                help,
                None,
                MetricType::Gauge,
            )?;
            let labels = [("walk", kind.as_str()), ("direction", direction.as_str())];
            ConstGauge::new(i64::try_from(pages).unwrap_or(i64::MAX))
                .encode(family.encode_family(&labels)?)?;
        }
        let help = "1 while the state file is full and the tail waits for the collector to take log records; 0 otherwise.";
        ConstGauge::new(i64::from(paused)).encode(encoder.encode_descriptor(
            "orgdata_audit_paused",
            help,
            None,
            MetricType::Gauge,
        )?)
    }
}

// === impl Series ===

impl Default for Series {
    fn default() -> Self {
        Self::introduced(0)
    }
}

impl Series {
    fn introduced(value: u64) -> Self {
        Self {
            total: value,
            last_shown: value,
            young: Some(Box::new(Young {
                introduced: value,
                introduced_at: Instant::now(),
                first_shown: None,
            })),
            last_rise: None,
        }
    }

    fn rise(&mut self, by: u64, trace: Option<TraceContext>) {
        self.total += by;
        if let Some(trace) = trace {
            self.last_rise = Some(Box::new(Rise {
                by,
                trace,
                at: SystemTime::now(),
            }));
        }
    }

    /// What a scrape at `now` sees.
    fn show(&mut self, now: Instant, hold: Duration) -> Shown<'_> {
        let risen = |young: &Young| {
            let first_shown = young.first_shown;
            hold.is_zero() || first_shown.is_some_and(|at| now > at && now - at >= hold)
        };
        if self.young.as_deref().is_some_and(risen) {
            self.young = None;
        }
        let value = self
            .young
            .as_ref()
            .map_or(self.total, |young| young.introduced);
        // Most are as they were: what is not written to need not be written back to memory.
        if self.last_shown != value {
            self.last_shown = value;
        }
        // An exemplar would tell of a rise that is not shown yet.
        Shown {
            value,
            last_rise: self.last_rise.as_deref().filter(|_| self.young.is_none()),
        }
    }
}

// === impl Shown ===

impl Shown<'_> {
    /// Writes the sample; the last rise, where its trace is known, as the exemplar (OpenMetrics 1.0, "Exemplars").
    fn encode(self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(rise) = self.last_rise else {
            return ConstCounter::new(self.value).encode(encoder);
        };
        let counter = CounterWithExemplar::<[(&str, String); 2]>::default();
        counter.inc_by(self.value.saturating_sub(rise.by), None, None);
        let labels = [
            (
                "trace_id",
                format!("{:032x}", u128::from_be_bytes(rise.trace.trace_id)),
            ),
            (
                "span_id",
                format!("{:016x}", u64::from_be_bytes(rise.trace.span_id)),
            ),
        ];
        counter.inc_by(rise.by, Some(labels), Some(rise.at));
        counter.encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn scrape(metrics: &Arc<AuditMetrics>, series: &str) -> Option<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        metrics.scraped(Instant::now());
        text.lines()
            .find_map(|line| line.strip_prefix(series))
            .map(|value| value.trim().to_owned())
    }

    fn labels(actor: &str) -> EventLabels {
        EventLabels {
            activity_type: "A".into(),
            actor: Some(actor.into()),
        }
    }

    const SERIES: &str = "orgdata_audit_events_total{activity_type=\"A\",actor=\"1\"}";

    #[tokio::test(start_paused = true)]
    async fn a_series_born_live_shows_zero_first_and_rises_after_the_hold() {
        let metrics = Arc::new(AuditMetrics::new(Duration::from_secs(60)));
        metrics.publish(Delta {
            events: vec![(labels("1"), 3)],
            ..Delta::default()
        });
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(
            scrape(&metrics, SERIES).as_deref(),
            Some("0"),
            "however late the first scrape comes"
        );
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("0"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("3"));
        metrics.publish(Delta {
            events: vec![(labels("1"), 1)],
            ..Delta::default()
        });
        assert_eq!(
            scrape(&metrics, SERIES).as_deref(),
            Some("4"),
            "later rises show at once"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_series_shows_its_old_value_first() {
        let metrics = Arc::new(AuditMetrics::new(Duration::from_secs(60)));
        metrics.publish(Delta {
            introduced: vec![(labels("1"), 5000)],
            ..Delta::default()
        });
        metrics.publish(Delta {
            events: vec![(labels("1"), 40)],
            ..Delta::default()
        });
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("5000"));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("5040"));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_hold_every_rise_shows_at_once() {
        let metrics = Arc::new(AuditMetrics::new(Duration::ZERO));
        metrics.publish(Delta {
            events: vec![(labels("1"), 3)],
            ..Delta::default()
        });
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("3"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rise_carries_its_trace_and_not_while_it_is_held() {
        let metrics = Arc::new(AuditMetrics::new(Duration::from_secs(60)));
        let trace = TraceContext {
            trace_id: [0xab; 16],
            span_id: [0x0c; 8],
        };
        metrics.publish(Delta {
            events: vec![(labels("1"), 3)],
            trace: Some(trace),
            ..Delta::default()
        });
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("0"));
        tokio::time::advance(Duration::from_secs(60)).await;
        let shown = scrape(&metrics, SERIES).expect("the series");
        let exemplar = format!(
            "3 # {{trace_id=\"{}\",span_id=\"{}\"}} 3.0 ",
            "ab".repeat(16),
            "0c".repeat(8)
        );
        assert!(shown.starts_with(&exemplar), "{shown}");
        assert_eq!(
            scrape(&metrics, "orgdata_audit_gaps_total").as_deref(),
            Some("0"),
            "what did not rise has none"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn counters_without_labels_exist_from_the_start_and_are_held_likewise() {
        let metrics = Arc::new(AuditMetrics::new(Duration::from_secs(60)));
        metrics.restore(Total::Gaps, 2, 2);
        metrics.publish(Delta {
            totals: vec![(Total::Gaps, 1)],
            ..Delta::default()
        });
        assert_eq!(
            scrape(&metrics, "orgdata_audit_gaps_total").as_deref(),
            Some("2")
        );
        assert_eq!(
            scrape(&metrics, "orgdata_audit_events_late_total").as_deref(),
            Some("0")
        );
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(
            scrape(&metrics, "orgdata_audit_gaps_total").as_deref(),
            Some("3")
        );
    }

    #[tokio::test]
    async fn a_retired_actor_leaves_the_exposition() {
        let metrics = Arc::new(AuditMetrics::new(Duration::ZERO));
        metrics.publish(Delta {
            events: vec![(labels("1"), 3), (labels("2"), 1)],
            names: vec![("1".into(), "Ada".into())],
            ..Delta::default()
        });
        metrics.publish(Delta {
            retired: vec!["1".into()],
            ..Delta::default()
        });
        assert_eq!(scrape(&metrics, SERIES), None);
        assert!(metrics.names().is_empty());
    }
}
