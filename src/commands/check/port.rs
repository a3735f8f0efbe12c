//! The addresses of the web server: free, or held by the exporter that has the state file.

use std::io::{self, ErrorKind};

use exporter_web::{WebArgs, bind};

use super::report::{Outcome, bad, good};
use crate::cli::ExporterSettings;

/// Binds the addresses as the exporter does, and returns why that is not possible.
pub(super) async fn problem(settings: &ExporterSettings) -> Option<io::Error> {
    let bound = bind(&settings.web, settings.web_config.clone()).await;
    bound.err()
}

/// Says whether the addresses can be used. `is_locked` says whether another process has the state file.
pub(super) fn judge(web: &WebArgs, problem: Option<&io::Error>, is_locked: bool) -> Outcome {
    let addresses = web.listen_addresses.join(", ");
    match problem {
        None => good(format!("{addresses}: free")),
        Some(error) if error.kind() == ErrorKind::AddrInUse && is_locked => good(format!(
            "{addresses}: in use, as the state file is, by an exporter that runs"
        )),
        Some(error) => bad(error),
    }
}
