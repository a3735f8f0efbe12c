//! The command `demo`: the exporter with a simulator inside, on loopback, without configuration.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use orgdata_api::KEY_VARIABLE;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::app::{App, RunError};
use crate::audit::Start;
use crate::cli::{self, Flags, Given, Settings};
use crate::simulator::{Config, Simulator};
use crate::web::{BindError, ListenAddress};
use crate::{otlp, shutdown};

/// The key that the simulator accepts.
const KEY: &str = "demo-key";

const PORT: u16 = 10917;

/// Runs the demo until a signal, or until nothing reads its standard output.
///
/// # Errors
/// If a setting is wrong, or the exporter fails.
pub async fn run(mut flags: Flags, given: &Given) -> Result<(), Failure> {
    let shutdown = shutdown::on_signal();
    let simulator = Simulator::spawn(Config::default())
        .await
        .map_err(|error| Failure::at_run_time(format!("cannot start the simulator: {error}")))?;
    let any_port = set_defaults(&mut flags, given, simulator.base_url());
    let (app, note) = match App::open(settings(&flags)?).await {
        // Another demo, or an exporter.
        Err(RunError::Bind(BindError::InUse { .. })) if any_port => {
            flags.web.listen_addresses = vec![loopback(0)];
            let app = App::open(settings(&flags)?).await?;
            (app, format!(" (port {PORT} is in use)"))
        }
        opened => (opened?, String::new()),
    };
    let bound = app.bound();
    let url = bound.url().unwrap_or_else(|| bound.names().join(" "));
    let url = url.trim_end_matches('/');
    let mut out = std::io::stdout();
    let introduced = write!(
        out,
        "A simulated organization and an exporter for it, all on this machine:\n\n  \
         {url}/          what the exporter is doing{note}\n  \
         {url}{path}   what Prometheus scrapes\n  \
         {simulator}/          the simulator: add events, break things\n\n\
         Each audit event is a log record; here is one per line. Ctrl-C ends the demo.\n\n",
        path = flags.web.telemetry_path,
        simulator = simulator.base_url(),
    );
    if introduced.and_then(|()| out.flush()).is_err() {
        return Ok(());
    }
    tokio::spawn(stop_without_reader(shutdown.clone()));
    Ok(app.run(shutdown).await?)
}

/// Sets what the demo needs and what the user did not set. Returns whether any port will do.
fn set_defaults(flags: &mut Flags, given: &Given, base_url: String) -> bool {
    flags.api.base_url = Some(base_url);
    flags.api.key_file = None;
    flags.api.max_requests_per_second = 100.0;
    if !given.contains("audit.poll-interval") {
        flags.audit.poll_interval = Duration::from_secs(1);
    }
    if !given.contains("audit.start") {
        flags.audit.start = Start::Ago(Duration::from_secs(600));
    }
    if !given.contains("tickets.scan-interval") {
        flags.tickets.scan_interval = Duration::from_secs(5);
    }
    if !given.contains("metrics.zero-hold") {
        flags.metrics.zero_hold = Duration::ZERO;
    }
    if !given.contains("state.path") {
        flags.state.path = ":memory:".to_owned();
    }
    let any_port = !given.contains("web.listen-address");
    if any_port {
        flags.web.listen_addresses = vec![loopback(PORT)];
    }
    any_port
}

fn loopback(port: u16) -> ListenAddress {
    ListenAddress::Tcp(Ipv4Addr::LOCALHOST.to_string(), port)
}

/// Resolves the settings with the simulator's key, and with standard output unless there is a collector.
fn settings(flags: &Flags) -> Result<Settings, Failure> {
    let env = |name: &str| match name {
        KEY_VARIABLE => Some(KEY.to_owned()),
        _ => cli::variable(name),
    };
    let mut settings = Settings::resolve(flags, &env)?;
    if settings.otlp.is_none() {
        let stdout = otlp::Settings::new(otlp::Target::Stdout, &flags.otlp, &env);
        settings.otlp = Some(stdout.map_err(Failure::in_settings)?);
        settings.ledger.outbox = true;
    }
    Ok(settings)
}

/// Stops the demo when the reader of its standard output has gone, as in `demo | head`.
#[cfg(unix)]
async fn stop_without_reader(shutdown: CancellationToken) {
    use std::os::fd::AsFd as _;
    use tokio::net::unix::pipe::Sender;
    // The copy is only watched, so standard output stays in blocking mode. A file or a terminal cannot be watched.
    let out = std::io::stdout().as_fd().try_clone_to_owned();
    let Ok(out) = out.and_then(Sender::from_owned_fd_unchecked) else {
        return;
    };
    if out.ready(tokio::io::Interest::ERROR).await.is_ok() {
        shutdown.cancel();
    }
}

#[cfg(not(unix))]
async fn stop_without_reader(_: CancellationToken) {}
