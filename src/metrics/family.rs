//! The building blocks of the metric families.
//!
//! The HELP text of a family is the documentation of its definition: [`families!`] defines a group of metrics that are
//! updated in place, [`descriptors!`] the families that a collector computes during a scrape and writes with [`Writer`].

use std::fmt;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, EncodeMetric,
    LabelSetEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::util::lock;

/// Defines a struct of metric families with its default, and `register`, which adds them to a registry in the order of the
/// fields.
///
/// A field is `"name_without_suffix" => field: Type = initial value`.
// A macro, because nothing else makes one text the documentation of a field and the HELP text of its family.
macro_rules! families {
    ($(#[$attribute:meta])* $reach:vis struct $group:ident {
        $($(#[doc = $help:literal])+ $name:literal => $visibility:vis $field:ident: $family:ty = $initial:expr,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        $reach struct $group { $($(#[doc = $help])+ $visibility $field: $family,)+ }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $initial,)+ }
            }
        }

        impl $group {
            /// Registers the families.
            pub(super) fn register(&self, registry: &mut prometheus_client::registry::Registry) {
                // The registry adds the full stop.
                $(registry.register(
                    $name,
                    concat!($($help),+).trim().trim_end_matches('.'),
                    self.$field.clone(),
                );)+
            }
        }
    };
}

/// Defines constants of type [`Descriptor`]: `NAME = "name_without_suffix" ["labels"];`.
// A macro for the same reason: the documentation of a constant is the HELP text.
macro_rules! descriptors {
    ($($(#[doc = $help:literal])+ $constant:ident = $name:literal $([$($label:literal),+])?;)+) => {
        $($(#[doc = $help])+
        const $constant: $crate::metrics::family::Descriptor = $crate::metrics::family::Descriptor {
            name: $name,
            help: concat!($($help),+),
            labels: &[$($($label),+)?],
        };)+
    };
}

pub(super) use {descriptors, families};

/// The name of a family, its HELP text after a space, and the names of its labels.
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
}

/// Names and values of labels.
struct LabelSet<'a, V>(&'static [&'static str], &'a [V]);

/// Names and values of labels that are all known in advance.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// A point in time that is absent until it is set, and again when it is unset.
#[derive(Clone, Debug, Default)]
pub(super) struct OptionalTime(Arc<Mutex<Option<Timestamp>>>);

/// Writes families whose values are computed during a scrape.
pub(super) struct Writer<'a>(pub(super) DescriptorEncoder<'a>);

/// Seconds since the epoch.
pub(super) fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// Returns a family that shows these label sets from the start.
pub(super) fn family<const N: usize, M>(
    metric: fn() -> M,
    labels: impl IntoIterator<Item = Labels<N>>,
) -> Family<Labels<N>, M> {
    let family = Family::new_with_constructor(metric);
    for labels in labels {
        drop(family.get_or_create(&labels));
    }
    family
}

// === impl OptionalTime ===

impl OptionalTime {
    pub(super) fn set(&self, time: Option<Timestamp>) {
        *lock(&self.0) = time;
    }
}

impl EncodeMetric for OptionalTime {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        match *lock(&self.0) {
            Some(time) => ConstGauge::new(seconds(time)).encode(encoder),
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        lock(&self.0).is_none()
    }
}

// === impl LabelSet ===

impl<V: AsRef<str>> EncodeLabelSet for LabelSet<'_, V> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut labels = self.0.iter().zip(self.1);
        labels.try_for_each(|(name, value)| (*name, value.as_ref()).encode(encoder.encode_label()))
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// Writes a family without labels.
    pub(super) fn one(&mut self, family: Descriptor, metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.descriptor(family, metric.metric_type())?)
    }

    /// Writes a gauge without labels.
    pub(super) fn gauge(
        &mut self,
        family: Descriptor,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.one(family, &ConstGauge::new(value))
    }

    /// Writes a gauge with labels, or nothing if it has no series.
    pub(super) fn gauges<V: AsRef<str>, N: EncodeGaugeValue, const LABELS: usize>(
        &mut self,
        family: Descriptor,
        series: impl IntoIterator<Item = ([V; LABELS], N)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.descriptor(family, MetricType::Gauge)?;
        series.try_for_each(|(values, value)| {
            let labels = LabelSet(family.labels, &values);
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)
        })
    }

    /// Starts a family.
    pub(super) fn descriptor(
        &mut self,
        family: Descriptor,
        kind: MetricType,
    ) -> Result<MetricEncoder<'_>, fmt::Error> {
        self.0
            .encode_descriptor(family.name, family.help.trim(), None, kind)
    }
}
