//! `demo`: the whole exporter beside a simulator in one process, on loopback, without configuration.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::KEY_VARIABLE;
use crate::app::{App, RunError};
use crate::audit::Start;
use crate::cli::{Flags, Given, Settings};
use crate::otlp;
use crate::shutdown;
use crate::simulator::{Config, Simulator};
use crate::web::{BindError, ListenAddress};

/// The simulator's key.
const KEY: &str = "demo-key";

/// The port of the exporter, where it is free.
const PORT: u16 = 10917;

/// Runs the demo until a signal, or until nobody reads its standard output any more.
///
/// # Errors
/// As the exporter itself.
pub async fn run(
    mut flags: Flags,
    given: &Given,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    let shutdown = shutdown::on_signal();
    let simulator = Simulator::spawn(Config::default())
        .await
        .map_err(|error| RunError::Setting(format!("the simulator finds no free port: {error}")))?;
    flags.api.base_url = Some(simulator.base_url());
    flags.api.key_file = None;
    // Nobody shares this service: everything may be as quick as a person likes to see it.
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
    flags.metrics.zero_hold = flags.metrics.zero_hold.or(Some(Duration::ZERO));
    flags.state.path = flags.state.path.or(Some(":memory:".to_owned()));
    let own_port = !given.contains("web.listen-address");
    if own_port {
        flags.web.listen_addresses = vec![ListenAddress::Socket(SocketAddr::from((
            Ipv4Addr::LOCALHOST,
            PORT,
        )))];
    }
    let with_key = |name: &str| {
        if name == KEY_VARIABLE {
            Some(KEY.to_owned())
        } else {
            env(name)
        }
    };
    let settings = |flags: &Flags| -> Result<Settings, RunError> {
        let mut settings = Settings::resolve(flags, &with_key)
            .map_err(|error| RunError::Setting(error.to_string()))?;
        if settings.otlp.is_none() {
            settings.otlp = Some(
                otlp::Settings::stdout(&flags.otlp.to_otlp(), env)
                    .map_err(|error| RunError::Setting(error.to_string()))?,
            );
            settings.ledger.outbox = true;
        }
        Ok(settings)
    };
    let app = match App::open(settings(&flags)?).await {
        // Another demo, or an exporter, has the port: any free one will do.
        Err(RunError::Bind(BindError::InUse { .. })) if own_port => {
            flags.web.listen_addresses = vec![ListenAddress::Socket(SocketAddr::from((
                Ipv4Addr::LOCALHOST,
                0,
            )))];
            App::open(settings(&flags)?).await?
        }
        other => other?,
    };
    let url = app
        .bound()
        .url()
        .unwrap_or_else(|| app.bound().names().join(" "));
    let url = url.trim_end_matches('/');
    let path = flags.web.telemetry_path.as_str();
    let simulator_url = simulator.base_url();
    let text = format!(
        "A simulated organization and an exporter beside it, all on this machine:\n\n  \
         {url}/          what the exporter is doing\n  \
         {url}{path}   what Prometheus scrapes\n  \
         {simulator_url}/          the simulator: add events, break things\n\n\
         Each audit event is a log record; here is one a line. Ctrl-C ends the demo.\n\n"
    );
    // Without a reader there is nothing to show; that is no failure, and certainly no panic.
    let mut out = std::io::stdout();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        return Ok(());
    }
    tokio::spawn(end_without_reader(shutdown.clone()));
    app.run(shutdown).await
}

/// Ends the demo when the reader of its standard output goes, as in `demo | head`.
#[cfg(unix)]
async fn end_without_reader(shutdown: CancellationToken) {
    use std::os::fd::AsFd as _;
    use tokio::io::Interest;
    use tokio::net::unix::pipe::Sender;
    // Watched, never written to: it stays as it was, blocking. A file cannot be watched, and has no reader that could go.
    let Ok(out) = std::io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .and_then(Sender::from_owned_fd_unchecked)
    else {
        return;
    };
    if out.ready(Interest::ERROR).await.is_ok() {
        shutdown.cancel();
    }
}

#[cfg(not(unix))]
async fn end_without_reader(_: CancellationToken) {}
