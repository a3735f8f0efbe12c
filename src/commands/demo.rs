//! The command `demo`: the exporter with a simulator inside, on loopback, without configuration.

use std::io::Write as _;
use std::net::Ipv4Addr;

use clap::ArgMatches;
use clap::parser::ValueSource;
use exporter_web::ListenAddress;
use orgdata_api::KEY_VARIABLE;
use otlp_logs::Target;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::app::App;
use crate::cli::{self, ExporterSettings, Flags};
use crate::relay::Delivery;
use crate::shutdown;
use crate::simulator::{Config, Simulator};

/// The key that the simulator accepts.
const KEY: &str = "demo-key";

/// Sets the defaults of the demo, and hides the flags that have no effect.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    let default = match argument.get_id().as_str() {
        id if id.starts_with("api.") => return argument.hide(true),
        "audit.poll-interval" => "1s",
        "audit.start" => "10m",
        "tickets.scan-interval" => "5s",
        "metrics.zero-hold" => "0",
        "state.path" => ":memory:",
        // If it is in use, any port will do.
        "web.listen-address" => "127.0.0.1:10917",
        _ => return argument,
    };
    argument.default_value(default)
}

/// Runs the demo until a signal, or until nothing reads its standard output.
///
/// # Errors
/// If a setting is wrong, or the exporter fails.
pub async fn run(mut flags: Flags, given: &ArgMatches) -> Result<(), Failure> {
    let shutdown = shutdown::on_signal();
    let simulator = Simulator::spawn(Config::default())
        .await
        .map_err(|error| Failure::at_run_time(format!("cannot start the simulator: {error}")))?;
    flags.api.base_url = Some(simulator.base_url());
    flags.api.key_file = None;
    flags.api.max_requests_per_second = 100.0;
    // The variable may name the state file of an exporter.
    if given.value_source("state.path") != Some(ValueSource::CommandLine) {
        flags.state.path = ":memory:".to_owned();
    }
    let any_port = given.value_source("web.listen-address") == Some(ValueSource::DefaultValue);
    let mut settings = settings(&flags)?;
    let records = match settings.otlp.as_ref().map(|otlp| &otlp.target) {
        Some(Target::Collector(collector)) => {
            format!("Each audit event is delivered as a log record to {collector}.")
        }
        _ => "Each line below is one audit event, delivered as a log record.".to_owned(),
    };
    let (app, note) = match App::bind(settings.clone()).await {
        // Another demo or an exporter has the port. A failure for another reason comes again.
        Err(_) if any_port => {
            let (host, port) = (Ipv4Addr::LOCALHOST.to_string(), 0);
            settings.web.listen_addresses = vec![ListenAddress { host, port }];
            (App::bind(settings).await?, " (port 10917 is in use)")
        }
        bound => (bound?, ""),
    };
    let bound = app.bound();
    let url = bound.url().unwrap_or_default();
    let mut out = std::io::stdout();
    let introduced = write!(
        out,
        "A simulated organization and an exporter for it, all on this machine:\n\n  \
         {url}/          what the exporter is doing{note}\n  \
         {url}{path}   what Prometheus scrapes\n  \
         {simulator}/          the simulator: add events, cause failures\n\n\
         {records} Press Ctrl-C to stop the demo.\n\n",
        path = flags.web.telemetry_path,
        simulator = simulator.base_url(),
    );
    if introduced.and_then(|()| out.flush()).is_err() {
        return Ok(());
    }
    tokio::spawn(stop_without_reader(shutdown.clone()));
    app.run(shutdown).await
}

/// Resolves the settings with the simulator's key, and with standard output unless there is a collector.
fn settings(flags: &Flags) -> Result<ExporterSettings, Failure> {
    let env = |name: &str| match name {
        KEY_VARIABLE => Some(KEY.to_owned()),
        _ => cli::variable(name),
    };
    let mut settings = ExporterSettings::resolve(flags, &env).map_err(Failure::in_settings)?;
    if settings.otlp.is_none() {
        let stdout = Delivery::to_stdout(&flags.otlp, &env);
        settings.otlp = Some(stdout.map_err(Failure::in_settings)?);
        settings.ledger.outbox = true;
    }
    Ok(settings)
}

/// Stops the demo when the reader of its standard output has gone, as in `demo | head`.
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
