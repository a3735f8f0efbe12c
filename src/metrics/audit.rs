//! Audit events as committed to the ledger, and what the tail is doing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::family::{Descriptor, Writer, descriptors, seconds};
use super::series::{Scrapes, Series};
pub use crate::ledger::{Changes, EventLabels, Total};
use crate::util::lock;

/// Upper bounds of `orgdata_audit_event_delay_seconds`: from a quick poll to an outage of a day.
const DELAY_BUCKETS: [f64; 14] = [
    1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
    86_400.0,
];

descriptors! {
    /// Audit events since the state file was created or --metrics.actor-label was changed, by activity type and actor. Earlier
    /// history is not counted. Entries are read by a poll loop, not by the scrape.
    EVENTS = "orgdata_audit_events";
    /// The name of an actor of orgdata_audit_events_total; always 1.
    ACTOR_INFO = "orgdata_audit_actor_info" ["actor", "name"];
    /// Audit events that appeared late, below newer ones. orgdata_audit_events_total includes them.
    LATE = "orgdata_audit_events_late";
    /// Audit log entries that were twice on one page. They are counted once.
    REPEATED = "orgdata_audit_entries_repeated";
    /// Audit log entries that violate the documented contract. An entry with a type is counted as an event anyway;
    /// any other becomes a dead letter.
    MALFORMED = "orgdata_audit_entries_malformed";
    /// Audit events counted under the actor other because --metrics.max-actors was reached.
    OTHER_ACTOR = "orgdata_audit_events_other_actor";
    /// Polls that found more new entries than one poll reads, so that the exporter has to catch up.
    CUT = "orgdata_audit_sweeps_cut";
    /// Gaps: entries or log records that are or may be lost, because the API deleted them or could not return them, or
    /// because no collector was configured.
    GAPS = "orgdata_audit_gaps";
    /// Audit log entries outside the configured filters that the API returned anyway. They are dropped.
    FILTERED = "orgdata_audit_entries_filtered";
    /// When the newest audit log entry in the state file was created, in seconds since the epoch.
    NEWEST = "orgdata_audit_newest_event_timestamp_seconds";
    /// Time from the creation of an audit event (createdAt) until it was counted, for events read live.
    DELAY = "orgdata_audit_event_delay_seconds";
    /// Entries that are delivered as log records but not counted, because they existed before the first sync or may have been
    /// counted before.
    BACKDATED = "orgdata_audit_entries_backdated";
    /// Audit events that were not counted, and log records that were not sent, because their activity type is excluded.
    EXCLUDED = "orgdata_audit_entries_excluded" ["from"];
    /// All audit log entries created up to this time are counted, in seconds since the epoch, except for entries that appear
    /// late. Absent until the first catch-up is done; does not advance while the exporter is behind.
    COMPLETE_THROUGH = "orgdata_audit_complete_through_timestamp_seconds";
    /// 1 while the exporter catches up with entries that polls did not read, or with the history that --audit.start asks for;
    /// otherwise 0.
    BEHIND = "orgdata_audit_behind";
    /// When the exporter fell behind, in seconds since the epoch; absent if it is not behind.
    BEHIND_SINCE = "orgdata_audit_behind_since_timestamp_seconds";
    /// 1 while reading audit logs pauses because the state file is full: the collector does not accept log records, or another
    /// process has the file open; otherwise 0.
    PAUSED = "orgdata_audit_paused";
    /// The organization whose audit logs are read, and the host of --api.base-url; always 1. Absent before the first page, and
    /// without the audit loop.
    ORGANIZATION = "orgdata_organization_info" ["organization_id", "organization_name", "api"];
}

/// Returns the family of a counter; `None` if its family has a label.
fn family(total: Total) -> Option<Descriptor> {
    Some(match total {
        Total::Late => LATE,
        Total::Duplicate => REPEATED,
        Total::Malformed => MALFORMED,
        Total::Folded => OTHER_ACTOR,
        Total::Cut => CUT,
        Total::Gaps => GAPS,
        Total::Filtered => FILTERED,
        Total::Backdated => BACKDATED,
        Total::Uncounted | Total::Unsent => return None,
    })
}

/// The families `orgdata_audit_*` and `orgdata_organization_info`.
#[derive(Debug)]
pub struct AuditMetrics {
    delay: Histogram,
    table: Mutex<Table>,
    scrapes: Mutex<Scrapes>,
}

/// The same families with the true value of each counter, whether or not a scraper has seen it.
#[derive(Debug)]
pub struct TrueValues(pub Arc<AuditMetrics>);

#[derive(Debug, Default)]
struct Table {
    events: BTreeMap<EventLabels, Series>,
    totals: [Series; Total::ALL.len()],
    names: BTreeMap<Arc<str>, String>,
    /// Events counted under any label, shown or not.
    counted: u64,
    newest: Option<Timestamp>,
    complete_through: Option<Timestamp>,
    /// Since when it has been behind.
    behind_since: Option<Timestamp>,
    paused: bool,
    /// Id and name, and the host of the API.
    organization: Option<[String; 3]>,
}

// === impl EventLabels ===

impl EncodeLabelSet for EventLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("activity_type", &*self.activity_type).encode(encoder.encode_label())?;
        match &self.actor {
            Some(actor) => ("actor", &**actor).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

// === impl AuditMetrics ===

impl AuditMetrics {
    /// Returns empty families. `zero_hold` is `--metrics.zero-hold`; if it is 0, increases are visible at once.
    pub fn new(zero_hold: Duration) -> Self {
        Self {
            delay: Histogram::new(DELAY_BUCKETS),
            table: Mutex::default(),
            scrapes: Mutex::new(Scrapes::new(zero_hold)),
        }
    }

    /// Shows what a transaction changed.
    pub fn publish(&self, changes: Changes) {
        for seconds in &changes.delays {
            self.delay.observe(*seconds);
        }
        let counted: u64 = changes.events.iter().map(|(_, rise)| rise).sum();
        let mut table = lock(&self.table);
        table.counted += counted;
        for (labels, value) in changes.introduced {
            let introduce = || Series::introduced(value);
            table.events.entry(labels).or_insert_with(introduce);
        }
        for (labels, rise) in changes.events {
            let series = table.events.entry(labels).or_default();
            series.rise(rise);
        }
        for (total, rise) in changes.totals {
            table.totals[total as usize].rise(rise);
        }
        table.names.extend(changes.names);
        table.newest = table.newest.max(changes.newest);
    }

    /// Shows what the ledger held when it was opened, and how many events it has counted.
    pub(crate) fn restore(&self, mut held: Changes, events: u64) {
        let mut table = lock(&self.table);
        table.counted = events;
        for (total, value) in held.totals.drain(..) {
            table.totals[total as usize] = Series::introduced(value);
        }
        drop(table);
        self.publish(held);
    }

    /// Notes that the connection of a scraper has a complete response whose encoding began at `began`.
    pub(crate) fn scraped(&self, began: Instant) {
        lock(&self.scrapes).completed(began);
    }

    /// Reports up to which time every entry is counted. It never falls.
    pub fn complete_through(&self, at: Option<Timestamp>) {
        let mut table = lock(&self.table);
        table.complete_through = table.complete_through.max(at);
    }

    /// Reports since when the exporter has been behind; `None` if it is not.
    pub fn behind(&self, since: Option<Timestamp>) {
        lock(&self.table).behind_since = since;
    }

    /// Returns since when the exporter has been behind.
    pub(crate) fn behind_since(&self) -> Option<Timestamp> {
        lock(&self.table).behind_since
    }

    /// Reports the organization that the entries belong to, and the host of the API.
    pub fn organization(&self, id: &str, name: &str, api: &str) {
        lock(&self.table).organization = Some([id, name, api].map(str::to_owned));
    }

    /// Reports whether reading pauses because the state file is full.
    pub fn paused(&self, paused: bool) {
        lock(&self.table).paused = paused;
    }

    /// Returns whether reading pauses because the state file is full.
    pub(crate) fn is_paused(&self) -> bool {
        lock(&self.table).paused
    }

    /// Returns every label set with its committed value, including increases that are not visible yet.
    pub fn events(&self) -> Vec<(EventLabels, u64)> {
        let table = lock(&self.table);
        let events = table.events.iter();
        events
            .map(|(labels, series)| (labels.clone(), series.total()))
            .collect()
    }

    /// Returns the number of series of events whose increase scrapers do not see yet, and the length of the hold.
    pub(crate) fn held(&self) -> (usize, Duration) {
        let (table, scrapes) = (lock(&self.table), lock(&self.scrapes));
        let seen = scrapes.seen(Instant::now());
        let series = table.events.values();
        let held = series.filter(|series| series.shown(seen) < series.total());
        (held.count(), scrapes.hold)
    }

    /// Returns the committed value of a counter without labels.
    pub(crate) fn total(&self, total: Total) -> u64 {
        lock(&self.table).totals[total as usize].total()
    }

    /// Returns the number of events counted since the state file was created, or labels were made in another way.
    pub fn counted(&self) -> u64 {
        lock(&self.table).counted
    }

    /// Returns the actors and their names.
    pub(crate) fn names(&self) -> BTreeMap<Arc<str>, String> {
        lock(&self.table).names.clone()
    }

    /// Returns the creation time of the newest entry.
    pub(crate) fn newest(&self) -> Option<Timestamp> {
        lock(&self.table).newest
    }

    /// Writes every family. `shown` is the value of a counter for scrapers who saw all that was introduced until then.
    fn write(
        &self,
        encoder: DescriptorEncoder<'_>,
        shown: fn(&Series, Option<Instant>) -> u64,
    ) -> fmt::Result {
        let table = lock(&self.table);
        let seen = lock(&self.scrapes).seen(Instant::now());
        let counter = |series| ConstCounter::new(shown(series, seen));
        let mut families = Writer(encoder);
        if !table.events.is_empty() {
            let mut events = families.descriptor(EVENTS, MetricType::Counter)?;
            for (labels, series) in &table.events {
                counter(series).encode(events.encode_family(labels)?)?;
            }
        }
        let names = table.names.iter();
        families.gauges(
            ACTOR_INFO,
            names.map(|(actor, name)| ([&**actor, name], 1_u32)),
        )?;
        for total in Total::ALL {
            if let Some(family) = family(total) {
                families.one(family, &counter(&table.totals[total as usize]))?;
            }
        }
        let mut excluded = families.descriptor(EXCLUDED, MetricType::Counter)?;
        for (from, total) in [("metrics", Total::Uncounted), ("records", Total::Unsent)] {
            let labels = [("from", from)];
            let encoder = excluded.encode_family(&labels)?;
            counter(&table.totals[total as usize]).encode(encoder)?;
        }
        if let Some(through) = table.complete_through {
            families.gauge(COMPLETE_THROUGH, seconds(through))?;
        }
        if let Some(newest) = table.newest {
            families.gauge(NEWEST, seconds(newest))?;
        }
        families.one(DELAY, &self.delay)?;
        families.gauge(BEHIND, u32::from(table.behind_since.is_some()))?;
        if let Some(at) = table.behind_since {
            families.gauge(BEHIND_SINCE, seconds(at))?;
        }
        families.gauge(PAUSED, u32::from(table.paused))?;
        let organization = table.organization.iter();
        families.gauges(
            ORGANIZATION,
            organization.map(|labels| (labels.each_ref(), 1_u32)),
        )
    }
}

/// As a scraper sees them.
impl Collector for AuditMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.write(encoder, Series::shown)
    }
}

// === impl TrueValues ===

impl Collector for TrueValues {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(encoder, |series, _| series.total())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::exposition::Format;

    const HOLD: Duration = Duration::from_secs(60);
    const SERIES: &str = "orgdata_audit_events_total{activity_type=\"A\",actor=\"1\"}";
    const GAPS: &str = "orgdata_audit_gaps_total";

    fn metrics(zero_hold: Duration) -> Arc<AuditMetrics> {
        Arc::new(AuditMetrics::new(zero_hold))
    }

    /// Returns a sample without noting a scrape.
    fn look(metrics: &Arc<AuditMetrics>, series: &str) -> Option<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let scrape = Format::OpenMetrics.encode(&registry).expect("encodes");
        let value = scrape.lines().find_map(|line| line.strip_prefix(series))?;
        Some(value.trim().to_owned())
    }

    fn scrape(metrics: &Arc<AuditMetrics>, series: &str) -> Option<String> {
        let began = Instant::now();
        let sample = look(metrics, series);
        metrics.scraped(began);
        sample
    }

    fn labels(actor: &str) -> EventLabels {
        EventLabels {
            activity_type: "A".into(),
            actor: Some(actor.into()),
        }
    }

    fn events(count: u64) -> Changes {
        Changes {
            events: vec![(labels("1"), count)],
            ..Changes::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_series_shows_zero_first_and_increases_after_the_hold() {
        let metrics = metrics(HOLD);
        metrics.publish(events(3));
        // However late the first scrape comes, and however often a browser looks before it.
        for _ in 0..3 {
            assert_eq!(look(&metrics, SERIES).as_deref(), Some("0"));
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        for (seconds, expected) in [(0, "0"), (59, "0"), (1, "3")] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(scrape(&metrics, SERIES).as_deref(), Some(expected));
        }
        // Later increases are visible at once.
        metrics.publish(events(1));
        assert_eq!(look(&metrics, SERIES).as_deref(), Some("4"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrape_does_not_count_for_a_series_introduced_after_it_began() {
        let metrics = metrics(HOLD);
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        metrics.publish(events(3));
        metrics.scraped(began);
        tokio::time::advance(HOLD).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("0"));
        tokio::time::advance(HOLD).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("3"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stored_value_is_shown_before_the_increase() {
        let metrics = metrics(HOLD);
        let held = Changes {
            totals: vec![(Total::Gaps, 2)],
            introduced: vec![(labels("1"), 5000)],
            ..Changes::default()
        };
        metrics.restore(held, 5000);
        metrics.publish(Changes {
            totals: vec![(Total::Gaps, 1)],
            ..events(40)
        });
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("5000"));
        assert_eq!(scrape(&metrics, GAPS).as_deref(), Some("2"));
        assert_eq!(metrics.events(), [(labels("1"), 5040)]);
        tokio::time::advance(HOLD).await;
        assert_eq!(scrape(&metrics, SERIES).as_deref(), Some("5040"));
        assert_eq!(scrape(&metrics, GAPS).as_deref(), Some("3"));
    }

    #[tokio::test]
    async fn the_time_since_when_it_is_behind_is_absent_if_it_is_not() {
        let metrics = metrics(Duration::ZERO);
        let behind = "orgdata_audit_behind ";
        let since = "orgdata_audit_behind_since_timestamp_seconds ";
        assert_eq!(look(&metrics, behind).as_deref(), Some("0"));
        assert_eq!(look(&metrics, since), None);
        metrics.behind(Timestamp::from_second(1_772_359_200).ok());
        assert_eq!(look(&metrics, behind).as_deref(), Some("1"));
        assert_eq!(look(&metrics, since).as_deref(), Some("1772359200.0"));
    }
}
