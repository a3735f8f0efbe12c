//! The command `demo`: the exporter with a simulator inside, on loopback, without configuration.

use std::io::Write as _;

use clap::ArgMatches;
use clap::builder::Resettable;
use clap::parser::ValueSource;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use orgdata_api::KEY_VARIABLE;
use otlp_logs::Target;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::app::App;
use crate::cli::{ExporterSettings, Flags};
use crate::records::Delivery;
use crate::shutdown;
use crate::simulator::{Config, Simulator};
use crate::util::one_line;

/// The key that the simulator accepts.
const KEY: &str = "demo-key";

/// The maximum length of a value in a line, in characters.
const MAX_VALUE: usize = 200;

/// The attributes in a line for a log record, and their short names.
const SHOWN: [(&str, &str); 10] = [
    ("orgdata.deal.name", "deal"),
    ("orgdata.evaluation.title", "evaluation"),
    ("orgdata.target_user.id", "target"),
    ("orgdata.task.id", "task"),
    ("orgdata.requirement.id", "requirement"),
    ("orgdata.meeting.id", "meeting"),
    ("orgdata.ticket.id", "ticket"),
    ("orgdata.team_request.id", "team_request"),
    ("orgdata.gap.reason", "reason"),
    ("log.record.uid", "id"),
];

/// Sets the defaults of the demo, which reads no variable, and hides the flags that have no effect.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    let argument = argument.env(Resettable::Reset);
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
    let is_given = |id: &&str| given.value_source(id) == Some(ValueSource::CommandLine);
    let ids = given.ids().map(clap::Id::as_str);
    if let Some(flag) = ids.filter(|id| id.starts_with("api.")).find(is_given) {
        let message = format!("demo has an API of its own; remove --{flag}");
        return Err(Failure::in_settings(message));
    }
    let shutdown = shutdown::on_signal();
    let simulator = Simulator::spawn(Config::default())
        .await
        .map_err(|error| Failure::at_run_time(format!("cannot start the simulator: {error}")))?;
    flags.api.base_url = Some(simulator.base_url());
    flags.api.max_requests_per_second = 100.0;
    let any_port = given.value_source("web.listen-address") == Some(ValueSource::DefaultValue);
    let mut settings = settings(&flags)?;
    let records = match settings.otlp.as_ref().map(|otlp| &otlp.target) {
        Some(Target::Collector(collector)) => {
            format!("Each audit event is delivered as a log record to {collector}.")
        }
        _ => "Each line below is one audit event, delivered as a log record.".to_owned(),
    };
    let (app, note) = match App::bind(settings.clone()).await {
        // Another demo or an exporter has the port. Any other failure occurs again with another port.
        Err(_) if any_port => {
            settings.web.listen_addresses = vec!["127.0.0.1:0".to_owned()];
            (App::bind(settings).await?, " (port 10917 is in use)")
        }
        bound => (bound?, ""),
    };
    let bound = app.bound();
    let url = bound.url().unwrap_or_default();
    let (page, path) = (format!("{url}/"), &flags.web.telemetry_path);
    let (metrics, control) = (format!("{url}{path}"), format!("{}/", simulator.base_url()));
    let mut out = std::io::stdout();
    let introduced = write!(
        out,
        "A simulated organization and an exporter for it, all on this machine:\n\n  \
         {page:width$}what the exporter is doing{note}\n  \
         {metrics:width$}what Prometheus scrapes\n  \
         {control:width$}the simulator: add events, cause failures\n\n\
         {records} Press Ctrl-C to stop the demo.\n\n",
        width = metrics.len().max(control.len()) + 3,
    );
    if introduced.and_then(|()| out.flush()).is_err() {
        return Ok(());
    }
    tokio::spawn(stop_without_reader(shutdown.clone()));
    app.run(shutdown).await
}

/// Returns a short line for each log record of a request, in local time.
fn short_lines(request: &ExportLogsServiceRequest) -> Result<Vec<u8>, String> {
    let (mut lines, zone) = (String::new(), TimeZone::system());
    let scopes = request
        .resource_logs
        .iter()
        .flat_map(|logs| &logs.scope_logs);
    for record in scopes.flat_map(|logs| &logs.log_records) {
        let attribute = |key: &str| {
            let found = record.attributes.iter().find(|given| given.key == key)?;
            match found.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) => Some(one_line(text, MAX_VALUE)),
                Value::IntValue(number) => Some(number.to_string()),
                _ => None,
            }
        };
        let time = Timestamp::from_nanosecond(record.time_unix_nano.into()).unwrap_or_default();
        let actor = attribute("user.full_name").or_else(|| attribute("user.id"));
        lines.push_str(&format!(
            "{:.3} {:<40} {:<20}",
            time.to_zoned(zone.clone()).time(),
            record.event_name,
            actor.as_deref().unwrap_or("-")
        ));
        for (key, name) in SHOWN {
            match attribute(key) {
                Some(value) if value.contains(' ') => lines.push_str(&format!(" {name}={value:?}")),
                Some(value) => lines.push_str(&format!(" {name}={value}")),
                None => {}
            }
        }
        lines.push('\n');
    }
    Ok(lines.into_bytes())
}

/// Resolves the settings with the simulator's key, and with standard output unless there is a collector.
fn settings(flags: &Flags) -> Result<ExporterSettings, Failure> {
    let env = |name: &str| (name == KEY_VARIABLE).then(|| KEY.to_owned());
    let mut settings = ExporterSettings::resolve(flags, &env).map_err(Failure::of_settings)?;
    if settings.otlp.is_none() {
        let stdout = Delivery::new(Target::Stdout(short_lines), flags.otlp.batch_size, &env);
        settings.otlp = Some(stdout);
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
