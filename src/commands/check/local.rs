//! What is on this machine: the state file, and the addresses to listen on.

use std::io;
use std::path::Path;
use std::time::Duration;

use exporter_web::WebConfig;
use rustix::fs::{Access, access};

use super::{Finding, bad, failed, good, warning};
use crate::cli::ExporterSettings;
use crate::ledger::{self, Content, Look, OpenError};
use crate::util::{counted, shown_duration};

/// Looks at the state file in a thread of its own, since its disk may hang.
pub(super) async fn state(settings: &ledger::Settings, limit: Duration) -> (Finding, Option<Look>) {
    let Some(path) = settings.path.clone() else {
        let said = "in memory, and lost when the process ends";
        return (good("state", said), None);
    };
    let (name, settings) = (path.display().to_string(), settings.clone());
    let look = tokio::task::spawn_blocking(move || look(&path, &settings));
    if let Ok(Ok(found)) = tokio::time::timeout(limit, look).await {
        return found;
    }
    let said = format!("cannot read {name} within {}", shown_duration(limit));
    let advice = "check whether its disk hangs, or give --state.path a file on another one";
    (bad("state", said, advice), None)
}

fn look(path: &Path, settings: &ledger::Settings) -> (Finding, Option<Look>) {
    // What counts is where a symbolic link leads to.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let look = writable(directory, path).map_err(|error| OpenError::unwritable(path, &error));
    match look.and_then(|()| Look::at(path)) {
        Ok(look) => (content(path, &look, settings), Some(look)),
        Err(error) => (failed("state", error), None),
    }
}

fn content(path: &Path, look: &Look, settings: &ledger::Settings) -> Finding {
    const CHECK: &str = "state";
    let name = path.display();
    match &look.content {
        Content::Nothing if look.held => {
            good(CHECK, format!("{name} is in use by a running exporter"))
        }
        Content::Nothing => {
            let said = format!("{name} does not exist yet and can be created");
            good(CHECK, said)
        }
        Content::Damaged(how) => warning(
            CHECK,
            format!("{name} is damaged: {how}"),
            "the exporter would begin with a new one, with counters at 0; restore a copy if there is one",
        ),
        Content::State(state) => {
            let base_url = &state.base_url;
            if let Err(error) = settings.check_owner(base_url) {
                return failed(CHECK, error);
            }
            let used = match look.held {
                true => ", and a running exporter uses it",
                false => "",
            };
            let moved = match *base_url == settings.base_url {
                true => String::new(),
                false => format!(", though it was written with {base_url}"),
            };
            let records = counted(state.waiting, "log record", "log records");
            let letters = counted(state.dead_letters, "dead letter", "dead letters");
            let said =
                format!("{name} can be used{used}{moved}; not delivered: {records}; {letters}");
            good(CHECK, said)
        }
    }
}

/// Checks whether this user could write the file and the files beside it.
fn writable(directory: &Path, file: &Path) -> io::Result<()> {
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if file.exists() {
        access(file, Access::READ_OK | Access::WRITE_OK)?;
    }
    Ok(())
}

/// Compares the organizations of what the key can read with that of the state file. `None` if nothing names one.
pub(super) fn organization(of_key: &[String], look: Option<Look>) -> Option<Finding> {
    const CHECK: &str = "organization";
    let ours = match look.map(|look| look.content) {
        Some(Content::State(state)) => state.organization,
        _ => None,
    };
    let first = of_key.first()?;
    Some(match ours {
        Some(ours) if !of_key.contains(&ours) => bad(
            CHECK,
            format!("the API key belongs to organization {first}, but the state file to {ours}"),
            format!("use a key of organization {ours}, or give --state.path another file"),
        ),
        Some(ours) => {
            let said = format!("organization {ours}, the same for the key and the state file");
            good(CHECK, said)
        }
        None => good(CHECK, first),
    })
}

/// Tries each address. `held` says that an exporter runs with the state file of these settings.
pub(super) async fn listen(
    settings: &ExporterSettings,
    held: bool,
    limit: Duration,
) -> Vec<Finding> {
    const CHECK: &str = "listen";
    let mut findings = Vec::new();
    if settings.web_config.has_file() {
        let with = if settings.web_config.is_tls() {
            "with"
        } else {
            "without"
        };
        let said = format!("the web configuration file is valid, {with} TLS");
        findings.push(good("web-config", said));
    }
    if settings.web.systemd_socket {
        let said = "on the sockets that systemd passes when it starts the exporter";
        findings.push(good(CHECK, said));
        return findings;
    }
    for address in &settings.web.listen_addresses {
        let mut alone = settings.web.clone();
        alone.listen_addresses = vec![address.clone()];
        let tried = exporter_web::bind(&alone, WebConfig::default());
        findings.push(match tokio::time::timeout(limit, tried).await {
            Err(_) => {
                let limit = shown_duration(limit);
                let said = format!("cannot resolve {address} within {limit}");
                bad(CHECK, said, "give IP addresses with --web.listen-address")
            }
            Ok(Ok(_)) => good(CHECK, format!("{address} is free")),
            Ok(Err(error)) if error.kind() == io::ErrorKind::AddrInUse && held => good(
                CHECK,
                format!("{address} is in use, as is the state file of these settings"),
            ),
            Ok(Err(error)) => failed(CHECK, error),
        });
    }
    findings
}
