//! What this process has used.

use std::time::{Duration, Instant};

/// CPU time and wall time of this process.
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    started: Instant,
}

// === impl Usage ===

impl Usage {
    pub(crate) fn now() -> Self {
        Self {
            cpu: cpu(),
            wall: Duration::ZERO,
            started: Instant::now(),
        }
    }

    pub(crate) fn elapsed(&self) -> Self {
        Self {
            cpu: cpu() - self.cpu,
            wall: self.started.elapsed(),
            started: self.started,
        }
    }
}

fn cpu() -> Duration {
    let stat = procfs::process::Process::myself()
        .and_then(|process| process.stat())
        .expect("/proc");
    Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

pub(crate) fn resident_mib() -> f64 {
    status().vmrss.unwrap_or_default() as f64 / 1024.0
}

pub(crate) fn peak_resident_mib() -> f64 {
    status().vmhwm.unwrap_or_default() as f64 / 1024.0
}

fn status() -> procfs::process::Status {
    procfs::process::Process::myself()
        .and_then(|process| process.status())
        .expect("/proc")
}
