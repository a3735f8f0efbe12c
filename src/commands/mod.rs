//! The commands of the binary. Each one defines its arguments; [`cli`](crate::cli) lists them.

pub mod backfill;
pub mod check;
pub mod completions;
pub mod dead_letters;
pub mod demo;
pub mod healthcheck;
pub mod simulate;

use std::io;

use crate::app::RunError;
use crate::cli::{self, SettingsError};
use crate::ledger::OpenError;

/// Why a command failed: the line for standard error and the exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    status: u8,
}

// === impl Failure ===

impl Failure {
    fn new(status: u8, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status,
        }
    }

    /// A failure at run time.
    pub fn at_run_time(message: impl Into<String>) -> Self {
        Self::new(1, message)
    }

    /// A wrong flag or setting.
    pub fn in_settings(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// A failure whose reasons are in a report on standard output.
    pub(crate) fn reported(status: u8) -> Self {
        Self::new(status, "")
    }

    /// Replaces a word of the message.
    #[must_use]
    pub(crate) fn replace(mut self, word: &str, with: &str) -> Self {
        self.message = self.message.replace(word, with);
        self
    }

    /// Adds to the message.
    #[must_use]
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Returns whether there is no line for standard error.
    pub fn is_reported(&self) -> bool {
        self.message.is_empty()
    }

    /// Names the variable that a wrong value came from, if it came from one.
    #[must_use]
    pub fn with_origin(self) -> Self {
        Self {
            message: cli::with_origin(&self.message, &self.message),
            ..self
        }
    }

    /// Returns the process's exit status.
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::in_settings(error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match error {
            OpenError::Sqlite { .. } => 1,
            OpenError::Locked(_) => 3,
            _ => 2,
        };
        Self::new(status, error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::new(error.exit_status(), error.to_string())
    }
}

/// Turns the result of printing into that of the command. A reader that has gone, as in `| head`, is not an error.
pub(crate) fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::at_run_time(
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use io::Write as _;
    printed(io::stdout().write_all(text.as_bytes()))
}
