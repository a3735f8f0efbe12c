//! `demo`: the whole exporter beside a simulator in one process, on loopback, without configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::app::{App, RunError};
use crate::audit::Start;
use crate::cli::{Flags, Settings};
use crate::otlp;
use crate::shutdown;
use crate::simulator::{Config, Simulator};
use crate::web::{BindError, ListenAddress};

/// The simulator's key.
const KEY: &str = "demo-key";

/// The port of the exporter, where it is free.
const PORT: u16 = 10917;

/// The flags that were given, on the command line or as variables; the others take the demo's own defaults.
pub fn given(matches: &ArgMatches) -> Vec<String> {
    let given = |id: &&str| matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable));
    matches.ids().map(|id| id.as_str()).filter(given).map(str::to_owned).collect()
}

/// Runs the demo until a signal.
///
/// # Errors
/// As the exporter itself.
pub async fn run(mut flags: Flags, given: &[String], env: &dyn Fn(&str) -> Option<String>) -> Result<(), RunError> {
    let simulator = Simulator::spawn(Config::default())
        .await
        .map_err(|error| RunError::Setting(format!("the simulator finds no free port: {error}")))?;
    let is_given = |id: &str| given.iter().any(|given| given == id);
    flags.api.base_url = Some(simulator.base_url());
    flags.api.key_file = None;
    // Nobody shares this service: everything may be as quick as a person likes to see it.
    flags.api.max_requests_per_second = 100.0;
    if !is_given("audit.poll-interval") {
        flags.audit.poll_interval = Duration::from_secs(1);
    }
    if !is_given("audit.start") {
        flags.audit.start = Start::Ago(Duration::from_secs(600));
    }
    if !is_given("tickets.scan-interval") {
        flags.tickets.scan_interval = Duration::from_secs(5);
    }
    flags.metrics.zero_hold = flags.metrics.zero_hold.or(Some(Duration::ZERO));
    flags.state.path = flags.state.path.or(Some(":memory:".to_owned()));
    let own_port = !is_given("web.listen-address");
    if own_port {
        flags.web.listen_addresses = vec![ListenAddress::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))];
    }
    let with_key = |name: &str| if name == "ORGDATA_API_KEY" { Some(KEY.to_owned()) } else { env(name) };
    let settings = |flags: &Flags| -> Result<Settings, RunError> {
        let mut settings = Settings::resolve(flags, &with_key).map_err(|error| RunError::Setting(error.to_string()))?;
        if settings.otlp.is_none() {
            settings.otlp = Some(otlp::Settings::stdout(&flags.otlp.to_otlp(), env).map_err(|error| RunError::Setting(error.to_string()))?);
            settings.ledger.outbox = true;
        }
        Ok(settings)
    };
    let app = match App::open(settings(&flags)?).await {
        // Another demo, or an exporter, has the port: any free one will do.
        Err(RunError::Bind(BindError::InUse { .. })) if own_port => {
            flags.web.listen_addresses = vec![ListenAddress::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))];
            App::open(settings(&flags)?).await?
        }
        other => other?,
    };
    let url = app.bound().url().unwrap_or_default();
    let url = url.trim_end_matches('/');
    println!("A simulated organization and an exporter beside it, all on this machine:\n");
    println!("  {url}/          what the exporter is doing");
    println!("  {url}{}   what Prometheus scrapes", flags.web.telemetry_path.as_str());
    println!("  {}/          the simulator: add events, break things", simulator.base_url());
    println!("\nEach audit event is a log record; here is one a line. Ctrl-C ends the demo.\n");
    app.run(shutdown::on_signal()).await
}
