//! A scrape, and what it has to show: the simulator's truth.

use std::collections::BTreeMap;

use orgdata_simulator::Truth;

#[derive(Clone, Debug)]
pub(crate) struct Scrape(pub(crate) String);

/// Returns the series of `orgdata_audit_events_total` by `activity_type` and `actor`, with their true values.
pub(crate) fn event_counts(truth: &Truth) -> BTreeMap<Vec<String>, f64> {
    let counts = truth.counts.iter();
    let counts = counts.map(|((kind, id), n)| (vec![kind.clone(), actor(*id)], *n as f64));
    counts.collect()
}

/// Returns the label of an actor.
pub(crate) fn actor(id: Option<i64>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

/// Asserts that every entry with one of these ids came as a log record, and no other. Returns how often each came again that came more than once.
pub(crate) fn assert_complete(
    served: impl IntoIterator<Item = String>,
    came: &[String],
) -> BTreeMap<String, usize> {
    let mut again: BTreeMap<String, usize> = BTreeMap::new();
    let is_entry = |id: &&String| !id.starts_with("orgdata.exporter.checkpoint-");
    for id in came.iter().filter(is_entry) {
        *again.entry(id.clone()).or_default() += 1;
    }
    let mut missing: Vec<String> = served.into_iter().collect();
    let served = missing.len();
    missing.retain(|id| !again.contains_key(id));
    assert!(missing.is_empty(), "missing: {missing:?}");
    assert_eq!(again.len(), served, "ids that the service never served");
    again.retain(|_, times| {
        *times -= 1;
        *times > 0
    });
    again
}

impl Scrape {
    /// Returns the value of a series, written as in the scrape.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.series(name).map(|(_, value)| value).sum()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.series(name).next().is_some()
    }

    /// Returns the values of the labels, and the value, of every series of a name.
    pub(crate) fn series(&self, name: &str) -> impl Iterator<Item = (Vec<String>, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            if !labels.is_empty() && !labels.starts_with('{') {
                return None;
            }
            let values = labels.split('"').skip(1).step_by(2);
            Some((values.map(str::to_owned).collect(), value.parse().ok()?))
        })
    }

    /// Returns the counted events as [`event_counts`] does.
    pub(crate) fn events(&self) -> BTreeMap<Vec<String>, f64> {
        let events = self.series("orgdata_audit_events_total");
        events.filter(|(_, count)| *count > 0.0).collect()
    }
}
