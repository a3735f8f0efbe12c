//! A family of series that is always shown in the order of its labels.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Like `prometheus-client`'s own family, whose order changes with every process: two scrapes of this one can be compared line by line.
#[derive(Debug)]
pub(super) struct Family<S, M> {
    series: Arc<RwLock<BTreeMap<S, M>>>,
    make: fn() -> M,
}

// === impl Family ===

impl<S: Ord + Clone, M: Clone> Family<S, M> {
    /// No series yet; `make` makes a new one.
    pub(super) fn new(make: fn() -> M) -> Self {
        Self {
            series: Arc::default(),
            make,
        }
    }

    /// The series with these labels; there is one from now on.
    pub(super) fn get(&self, labels: &S) -> M {
        if let Some(metric) = self
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(labels)
        {
            return metric.clone();
        }
        self.series
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(labels.clone())
            .or_insert_with(self.make)
            .clone()
    }
}

impl<S, M: Clone> Family<S, M> {
    /// Every series there is.
    pub(super) fn all(&self) -> Vec<M> {
        self.series
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}

impl<S, M> Clone for Family<S, M> {
    fn clone(&self) -> Self {
        Self {
            series: self.series.clone(),
            make: self.make,
        }
    }
}

impl<S: EncodeLabelSet, M: EncodeMetric + TypedMetric> EncodeMetric for Family<S, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, metric) in &*self.series.read().unwrap_or_else(PoisonError::into_inner) {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    /// Without a series not even the description is written.
    fn is_empty(&self) -> bool {
        self.series
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::exposition::Format;

    #[test]
    fn series_are_in_the_order_of_their_labels() {
        let family = Family::<[(&str, u8); 1], Counter>::new(Counter::default);
        let mut registry = Registry::default();
        registry.register("example", "Example", family.clone());
        assert_eq!(Format::OpenMetrics.encode(&registry, 0).unwrap(), "# EOF\n");
        for n in [7, 3, 9, 1, 3] {
            family.get(&[("n", n)]).inc();
        }
        let scrape = Format::OpenMetrics.encode(&registry, 0).unwrap();
        let series: Vec<_> = scrape
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert_eq!(
            series,
            ["1", "3", "7", "9"].map(|n| format!(
                "example_total{{n=\"{n}\"}} {}",
                if n == "3" { 2 } else { 1 }
            ))
        );
    }
}
