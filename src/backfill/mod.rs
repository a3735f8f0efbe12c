//! The command `backfill`: a range of history, once, to a collector as log records or to Prometheus as a file of samples.
//!
//! It is a process of its own beside the exporter and shares nothing with it but what the service allows both to ask.

mod args;
mod file;
mod fold;
mod openmetrics;
mod otlp;
mod patience;
mod plan;
mod progress;
mod samples;
mod scan;
mod seam;
mod spool;

pub(crate) use args::shown;
pub use args::{BackfillArgs, Target, Until};

use tokio_util::sync::CancellationToken;

use crate::cli::Given;
use crate::ledger::OpenError;
use plan::{Goal, Plan};

/// Why a backfill did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// A wrong flag or setting.
    #[error("{0}")]
    Setting(String),
    /// The progress file cannot be opened.
    #[error("{}", in_terms_of_progress(.0))]
    Progress(#[from] OpenError),
    /// Something failed on the way; the message says how to go on.
    #[error("{0}")]
    Failed(String),
}

// === impl BackfillError ===

impl BackfillError {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Progress(OpenError::Locked(_)) => 3,
            Self::Setting(_) | Self::Progress(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

/// Runs it to its end, or until `shutdown`.
///
/// # Errors
/// Where a setting is wrong, something fails, or it was stopped before its end.
pub async fn run(
    args: BackfillArgs,
    given: &Given,
    env: &dyn Fn(&str) -> Option<String>,
    shutdown: CancellationToken,
) -> Result<(), BackfillError> {
    let plan = Plan::new(args, given, env)?;
    match plan.goal.clone() {
        Goal::Deliver(to) => otlp::run(plan, &to, shutdown).await,
        Goal::Write(file) => openmetrics::run(plan, &file, shutdown).await,
        Goal::Count => openmetrics::count(plan, shutdown).await,
    }
}

/// What is wrong with the progress file, which is a state file in all but its name.
fn in_terms_of_progress(error: &OpenError) -> String {
    error
        .to_string()
        .replace("state file", "progress file")
        .replace("--state.path", "--progress")
        .replace(", or :memory:", "")
}
