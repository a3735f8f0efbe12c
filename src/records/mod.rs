//! Log records: what an entry becomes, and their delivery from the outbox to the collector.

mod bisect;
mod record;
mod redact;
mod run;

use std::collections::BTreeMap;

use otlp_logs::{Connection, Given, Signal, Target, json_line, resource};

use crate::metrics::build::VERSION;

pub(crate) use bisect::{Bisect, Fate, Pause};
pub use record::{Envelope, log_record};
pub use redact::Redaction;
pub use run::{Next, Relay};

/// The name of the exporter in requests.
pub(crate) const USER_AGENT: &str = concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION"));

/// The maximum size of a request: below the 4 MiB that a gRPC server accepts by default.
const MAX_REQUEST: usize = 3 * 1024 * 1024;

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
    /// Returns the delivery to the collector of `--otlp.endpoint`, `--otlp.protocol`, `--otlp.bearer-token-file` and variables, or `None` without an
    /// endpoint or with `OTEL_LOGS_EXPORTER=none`.
    ///
    /// # Errors
    /// If a value that has an effect is wrong.
    pub fn from_env(
        endpoint: Option<&str>,
        protocol: Option<&str>,
        bearer_token_file: Option<&str>,
        batch_size: u32,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        if protocol.is_some_and(|protocol| protocol.trim().eq_ignore_ascii_case("stdout")) {
            if endpoint.is_some() {
                return Err("--otlp.protocol=stdout writes log records to standard output; remove --otlp.endpoint".to_owned());
            }
            return Ok(Some(Self::new(Target::Stdout(json_line), batch_size, env)));
        }
        let connection = Connection::from_env(
            Signal::LOGS,
            Given::new("--otlp.endpoint", endpoint),
            Given::new("--otlp.protocol", protocol),
            USER_AGENT,
            exporter_web::read_file,
            env,
        )?;
        let Some(mut connection) = connection else {
            return Ok(None);
        };
        if let Some(file) = Given::new("--otlp.bearer-token-file", bearer_token_file) {
            connection = connection.with_bearer_token(file)?;
        }
        let target = Target::Collector(Box::new(connection));
        Ok(Some(Self::new(target, batch_size, env)))
    }

    /// Returns the delivery to a target.
    pub fn new(target: Target, batch_size: u32, env: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            target,
            batch_size: batch_size as usize,
            resource: resource(&own_resource(), env),
        }
    }

    /// Returns the resource and scope around the records of an instance in a request.
    pub(crate) fn envelope(&self, instance_id: &str) -> Envelope {
        let mut resource = self.resource.clone();
        let id = resource.entry("service.instance.id".to_owned());
        id.or_insert_with(|| instance_id.to_owned());
        Envelope::new(resource)
    }
}

/// Returns the attributes that identify the exporter.
pub(crate) fn own_resource() -> [(&'static str, &'static str); 2] {
    [
        ("service.name", "orgdata-exporter"),
        ("service.version", VERSION),
    ]
}
