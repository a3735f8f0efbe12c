//! The outcome of the exporter or a command that failed.

use std::process::ExitCode;

use crate::cli;
use crate::ledger::OpenError;
use crate::telemetry;

/// Why the exporter or a command failed: the line for standard error and the exit status.
#[derive(Debug)]
pub struct Failure {
    pub(crate) message: String,
    /// The exit status.
    pub status: u8,
}

// === impl Failure ===

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
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
    pub(crate) fn in_settings(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// Wrong settings, of which the first one is named.
    pub fn of_settings(wrong: Vec<String>) -> Self {
        Self::in_settings(wrong.into_iter().next().unwrap_or_default())
    }

    /// A part ended because of a bug.
    pub(super) fn internal(part: &str) -> Self {
        Self::at_run_time(format!(
            "internal error: {part} failed; please report it with the lines above. Nothing is lost: a restart continues from the state file"
        ))
    }

    /// Names the variable that a wrong value came from, if it came from one.
    #[must_use]
    pub fn with_origin(self) -> Self {
        Self {
            message: cli::with_origin(&self.message, &self.message),
            ..self
        }
    }

    /// Prints the message, unless a report has said why, and returns the exit status.
    pub fn exit(&self) -> ExitCode {
        if !self.message.is_empty() {
            telemetry::print(format!("orgdata-exporter: {}\n", self.message));
        }
        ExitCode::from(self.status)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match error {
            OpenError::Locked(_) => 3,
            // A full, failing or broken disk, for example: the next start may work.
            OpenError::Sqlite { .. } | OpenError::Damaged { .. } => 1,
            _ => 2,
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use rustix::io::Errno;

    use super::*;

    /// systemd does not restart it after status 2.
    #[test]
    fn an_io_error_that_may_pass_ends_with_status_1_and_any_other_with_2() {
        let passing = [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::MFILE];
        let passing = passing.into_iter().chain([Errno::NOSPC, Errno::DQUOT]);
        let lasting = [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::ISDIR];
        let lasting = lasting.into_iter().chain([
            Errno::NOTDIR,
            Errno::ROFS,
            Errno::NAMETOOLONG,
            Errno::LOOP,
        ]);
        let passing = passing.map(|errno| (errno, 1));
        for (errno, status) in passing.chain(lasting.map(|errno| (errno, 2))) {
            let error = io::Error::from(errno);
            let failure = Failure::from(OpenError::io(Path::new("/srv/state.db"), &error));
            assert_eq!(failure.status, status, "{error}");
            for words in ["/srv/state.db", &error.to_string()] {
                assert!(failure.message.contains(words), "{}", failure.message);
            }
        }
    }
}
