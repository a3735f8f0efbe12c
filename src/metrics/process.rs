//! `process_*`: what the exporter itself uses, under the names of the official client libraries.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads the process's figures from `/proc` at every scrape. Without `/proc` the families are absent.
#[derive(Debug)]
pub struct ProcessCollector {
    /// Seconds since the epoch. Read once: it is derived from the clock, and a moving start time reads as a restart.
    start_time: Option<f64>,
}

/// One reading; what could not be read is absent.
#[derive(Debug, Default)]
struct Reading {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    max_virtual_bytes: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

// === impl ProcessCollector ===

impl ProcessCollector {
    /// Notes when the process started.
    pub fn new() -> Self {
        Self {
            start_time: start_time(),
        }
    }
}

impl Default for ProcessCollector {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let reading = read();
        if let Some(seconds) = reading.cpu_seconds {
            let counter = ConstCounter::new(seconds);
            let help = "Total user and system CPU time spent, in seconds.";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size, in bytes.",
            reading.resident_bytes.map(to_f64),
        )?;
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size, in bytes.",
            reading.virtual_bytes.map(to_f64),
        )?;
        let help = "Maximum amount of virtual memory available, in bytes.";
        gauge(
            "process_virtual_memory_max_bytes",
            help,
            reading.max_virtual_bytes.map(to_f64),
        )?;
        gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            reading.open_fds.map(to_f64),
        )?;
        gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            reading.max_fds.map(to_f64),
        )?;
        gauge(
            "process_start_time_seconds",
            "Start time of the process, in seconds since the epoch.",
            self.start_time,
        )
    }
}

/// A sample is a float anyway; sizes are exact up to 8 PiB.
#[allow(clippy::cast_precision_loss)]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(target_os = "linux")]
fn start_time() -> Option<f64> {
    let stat = procfs::process::Process::myself()
        .and_then(|process| process.stat())
        .ok()?;
    Some(
        to_f64(procfs::boot_time_secs().ok()?)
            + to_f64(stat.starttime) / to_f64(procfs::ticks_per_second()),
    )
}

#[cfg(target_os = "linux")]
fn read() -> Reading {
    use procfs::process::{LimitValue, Process};

    let Ok(process) = Process::myself() else {
        return Reading::default();
    };
    let (stat, limits) = (process.stat().ok(), process.limits().ok());
    // Without a limit it is the largest number that there is, as in the client libraries.
    let limit = |value: LimitValue| match value {
        LimitValue::Value(limit) => limit,
        LimitValue::Unlimited => u64::MAX,
    };
    Reading {
        cpu_seconds: stat
            .as_ref()
            .map(|stat| to_f64(stat.utime + stat.stime) / to_f64(procfs::ticks_per_second())),
        resident_bytes: stat.as_ref().map(|stat| stat.rss * procfs::page_size()),
        virtual_bytes: stat.as_ref().map(|stat| stat.vsize),
        max_virtual_bytes: limits
            .as_ref()
            .map(|limits| limit(limits.max_address_space.soft_limit)),
        open_fds: process
            .fd_count()
            .ok()
            .and_then(|count| u64::try_from(count).ok()),
        max_fds: limits
            .as_ref()
            .map(|limits| limit(limits.max_open_files.soft_limit)),
    }
}

#[cfg(not(target_os = "linux"))]
fn start_time() -> Option<f64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn read() -> Reading {
    Reading::default()
}

// Two attributes: clippy knows a test module by `cfg(test)` alone.
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::exposition::Format;

    fn scrape() -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector::new()));
        Format::Text.encode(&registry, 0).unwrap()
    }

    fn value(scrape: &str, name: &str) -> f64 {
        let line = scrape.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        line.unwrap_or_else(|| panic!("no {name}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn every_family_of_the_client_libraries_is_there() {
        let scrape = scrape();
        for name in [
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_virtual_memory_max_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            assert!(value(&scrape, name) > 1.0, "{name}");
        }
        assert!(value(&scrape, "process_cpu_seconds_total") >= 0.0);
    }

    #[test]
    fn the_start_time_is_in_the_past_and_recent() {
        let start = value(&scrape(), "process_start_time_seconds");
        let age = jiff::Timestamp::now().as_duration().as_secs_f64() - start;
        assert!((-2.0..86_400.0).contains(&age), "started {age} s ago");
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = value(&scrape(), "process_open_fds");
        let files: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        // Other tests open and close files beside this one.
        assert!(value(&scrape(), "process_open_fds") > before + 25.0);
        drop(files);
    }
}
