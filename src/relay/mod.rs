//! Delivery of log records from the outbox to the collector.

mod bisect;
mod run;

use std::collections::BTreeMap;

use clap::{Args, value_parser};
use otlp_logs::{Connection, Given, Render, Signal, Target, json_line, resource};

use crate::metrics::build::VERSION;

pub use run::{Next, Relay};

/// The name of the exporter in requests.
pub(crate) const USER_AGENT: &str = concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION"));

/// The flags `--otlp.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log records")]
#[group(skip)]
pub struct OtlpFlags {
    /// The collector; without one no log records are sent [default: OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(id = "otlp.endpoint", long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// grpc, http/protobuf, or stdout for OTLP JSON lines on standard output [default: OTEL_EXPORTER_OTLP_LOGS_PROTOCOL, then OTEL_EXPORTER_OTLP_PROTOCOL, then grpc for port 4317 and http/protobuf for any other]
    #[arg(id = "otlp.protocol", long, value_name = "PROTOCOL")]
    pub protocol: Option<String>,
    /// Maximum number of records per request, which is never larger than 3 MiB
    #[arg(id = "otlp.batch-size", long, value_name = "NUMBER")]
    #[arg(default_value = "512", value_parser = value_parser!(u32).range(1..=100_000))]
    pub batch_size: u32,
    /// What records say of users: everything, a hash of the actor's id, or nothing
    #[arg(id = "otlp.actor", long, value_name = "MODE", value_enum, default_value_t = ActorMode::Full)]
    pub actor: ActorMode,
    /// Do not send records of these activity types, in which * stands for any text; repeatable
    #[arg(
        id = "otlp.exclude-activity-types",
        long,
        value_name = "TYPE",
        value_delimiter = ','
    )]
    pub exclude_activity_types: Vec<String>,
    /// A path in metadata, like contact.email, whose value is replaced in records and dead letters; repeatable
    #[arg(id = "otlp.redact", long, value_name = "PATH", value_delimiter = ',')]
    pub redact: Vec<String>,
}

/// A value of `--otlp.actor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ActorMode {
    /// Ids, names and pictures
    Full,
    /// The attribute user.hash, keyed with --metrics.hash-key-file
    Hash,
    /// Nothing
    None,
}

/// Where and how log records are delivered.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The destination.
    pub target: Target,
    /// The maximum number of records in a request.
    pub batch_size: usize,
    /// The resource of records but for the instance.
    resource: BTreeMap<String, String>,
}

// === impl Delivery ===

impl Delivery {
    /// Returns the delivery to the collector of flags and variables, or `None` without an endpoint or with
    /// `OTEL_LOGS_EXPORTER=none`.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn from_env(
        flags: &OtlpFlags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let endpoint = Given::new("--otlp.endpoint", flags.endpoint.as_deref());
        let protocol = Given::new("--otlp.protocol", flags.protocol.as_deref());
        if protocol
            .as_ref()
            .is_some_and(|given| given.value == "stdout")
        {
            if endpoint.is_some() {
                return Err("--otlp.protocol=stdout writes log records to standard output; remove --otlp.endpoint".to_owned());
            }
            return Self::to_stdout(json_line, flags, env).map(Some);
        }
        let connection = Connection::from_env(
            Signal::LOGS,
            endpoint,
            protocol,
            USER_AGENT,
            exporter_web::read_file,
            env,
        )?;
        let target = connection.map(|connection| Target::Collector(Box::new(connection)));
        target
            .map(|target| Self::new(target, flags, env))
            .transpose()
    }

    /// Returns the delivery to standard output, as lines.
    ///
    /// # Errors
    /// If a variable is wrong.
    pub fn to_stdout(
        lines: Render,
        flags: &OtlpFlags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        Self::new(Target::Stdout(lines), flags, env)
    }

    fn new(
        target: Target,
        flags: &OtlpFlags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        Ok(Self {
            target,
            batch_size: flags.batch_size as usize,
            resource: resource(&own_resource(), env)?,
        })
    }

    /// Returns the resource of every record.
    fn resource(&self, instance_id: &str) -> BTreeMap<String, String> {
        let mut resource = self.resource.clone();
        let id = resource.entry("service.instance.id".to_owned());
        id.or_insert_with(|| instance_id.to_owned());
        resource
    }
}

/// Returns what the exporter says of itself.
pub(crate) fn own_resource() -> [(&'static str, &'static str); 2] {
    [
        ("service.name", "orgdata-exporter"),
        ("service.version", VERSION),
    ]
}
