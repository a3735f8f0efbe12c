//! `process_*`: what the exporter itself uses, under the names of the official client libraries.

use std::fmt;
use std::sync::OnceLock;

use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use super::family::{Writer, descriptors};

descriptors! {
    /// Total user and system CPU time spent, in seconds.
    CPU = "process_cpu_seconds";
    /// Resident memory size, in bytes.
    RESIDENT_MEMORY = "process_resident_memory_bytes";
    /// Virtual memory size, in bytes.
    VIRTUAL_MEMORY = "process_virtual_memory_bytes";
    /// Maximum amount of virtual memory available, in bytes.
    MAX_VIRTUAL_MEMORY = "process_virtual_memory_max_bytes";
    /// Number of open file descriptors.
    OPEN_FDS = "process_open_fds";
    /// Maximum number of open file descriptors.
    MAX_FDS = "process_max_fds";
    /// Start time of the process, in seconds since the epoch.
    START_TIME = "process_start_time_seconds";
}

/// Reads the values from `/proc` during each scrape. A value that cannot be read is absent.
#[derive(Debug, Default)]
pub(crate) struct ProcessCollector {
    /// Read once: it is derived from the clock, and a start time that moves looks like a restart.
    start_time: OnceLock<Option<f64>>,
}

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Writer(encoder);
        let Ok(process) = Process::myself() else {
            return Ok(());
        };
        if let Ok(stat) = process.stat() {
            let resident = stat.rss * procfs::page_size();
            families.one(CPU, &ConstCounter::new(seconds(stat.utime + stat.stime)))?;
            families.gauge(RESIDENT_MEMORY, resident as f64)?;
            families.gauge(VIRTUAL_MEMORY, stat.vsize as f64)?;
        }
        if let Ok(limits) = process.limits() {
            families.gauge(
                MAX_VIRTUAL_MEMORY,
                limit(limits.max_address_space.soft_limit),
            )?;
            families.gauge(MAX_FDS, limit(limits.max_open_files.soft_limit))?;
        }
        if let Ok(count) = process.fd_count() {
            families.gauge(OPEN_FDS, count as f64)?;
        }
        let start_time = || {
            let ticks = process.stat().ok()?.starttime;
            Some(procfs::boot_time_secs().ok()? as f64 + seconds(ticks))
        };
        match self.start_time.get_or_init(start_time) {
            Some(start_time) => families.gauge(START_TIME, *start_time),
            None => Ok(()),
        }
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// The client libraries show an unlimited resource as the largest number.
fn limit(value: LimitValue) -> f64 {
    match value {
        LimitValue::Value(limit) => limit as f64,
        LimitValue::Unlimited => u64::MAX as f64,
    }
}
