//! The target of log records and spans: the flags `--otlp.*` and the standard variables, as the OpenTelemetry
//! specification ("OTLP Exporter Configuration") defines them.
//!
//! - `--otlp.endpoint` wins over the variable of the signal, and that over `OTEL_EXPORTER_OTLP_ENDPOINT`.
//! - For HTTP the path of the signal is appended to the general endpoint, and to a flag without a path. The endpoint of a
//!   signal is used as it is.
//! - gRPC has no path. `host:port` without a scheme means TLS unless `OTEL_EXPORTER_OTLP_[signal_]INSECURE` is true.
//! - Without a protocol, port 4317 means gRPC, which is registered for it, and any other port `http/protobuf`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use crate::metrics::build::VERSION;
use crate::metrics::certificates::not_after;
use crate::util::{between, labels};

/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default of `OTEL_SERVICE_NAME`.
const SERVICE_NAME: &str = "orgdata-exporter";

/// Log records: `OTEL_EXPORTER_OTLP_LOGS_…`.
pub(crate) const LOGS: &str = "LOGS";

/// Spans: `OTEL_EXPORTER_OTLP_TRACES_…`.
pub(crate) const TRACES: &str = "TRACES";

/// The port that is registered for OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// The flags `--otlp.*`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log records")]
#[group(skip)]
pub struct Flags {
    /// The collector; without one no log records are sent [default: OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(id = "otlp.endpoint", long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// grpc or http/protobuf [default: OTEL_EXPORTER_OTLP_LOGS_PROTOCOL, then OTEL_EXPORTER_OTLP_PROTOCOL, then grpc for port 4317 and http/protobuf for any other]
    #[arg(id = "otlp.protocol", long, value_name = "PROTOCOL")]
    pub protocol: Option<String>,
    /// Maximum number of records per request, which is never larger than 3 MiB
    #[arg(id = "otlp.batch-size", long, value_name = "NUMBER")]
    #[arg(default_value = "512", value_parser = between(1, 100_000))]
    pub batch_size: u32,
    /// Include names and pictures of users in records
    #[arg(
        id = "otlp.user-names",
        long,
        value_name = "BOOL",
        default_value = "true"
    )]
    pub user_names: bool,
    /// A path in metadata, like contact.email, whose value is replaced in records and dead letters; repeatable
    #[arg(id = "otlp.redact", long, value_name = "PATH", value_delimiter = ',')]
    pub redact: Vec<String>,
}

/// Checked settings of log records.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The destination of records.
    pub target: Target,
    /// The maximum number of records in a request.
    pub batch_size: usize,
    /// The resource of records but for the instance.
    resource: BTreeMap<String, String>,
}

/// The destination of records.
#[derive(Clone, Debug)]
pub enum Target {
    /// A collector.
    Collector(Box<Connection>),
    /// Standard output, one readable line for each record.
    Stdout,
}

/// How a collector is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The address; for HTTP with the path of the signal, for gRPC without one.
    pub endpoint: Url,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// The decoded values of the endpoint's query. They may be tokens.
    pub query: Vec<String>,
    /// Headers of every request. They may contain tokens and are never shown.
    pub headers: HeaderMap,
    /// The maximum duration of a request.
    pub timeout: Duration,
    /// Whether requests are compressed with gzip.
    pub gzip: bool,
    /// The file with root certificates (PEM) in place of the system's.
    pub certificate: Option<Given>,
    /// The files with certificate and key (PEM) of the exporter.
    pub client: Option<(Given, Given)>,
}

labels! {
    /// The encoding of OTLP, as `--otlp.protocol` has it.
    Protocol {
        /// gRPC.
        Grpc => "grpc",
        /// Protobuf over HTTP.
        HttpProtobuf => "http/protobuf",
    }
}

/// A value, and the flag or variable that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The flag or variable.
    pub name: String,
    /// The value without white space around it.
    pub value: String,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings of flags and variables, or `None` without an endpoint or with `OTEL_LOGS_EXPORTER=none`.
    ///
    /// `env` reads a variable. An empty variable is an unset one.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn from_env(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let (endpoint, protocol) = (flags.endpoint.as_deref(), flags.protocol.as_deref());
        let connection = Connection::from_env(LOGS, endpoint, protocol, env)?;
        let target = connection.map(|connection| Target::Collector(Box::new(connection)));
        target
            .map(|target| Self::new(target, flags, env))
            .transpose()
    }

    /// Returns the settings of a target.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn new(
        target: Target,
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        Ok(Self {
            target,
            batch_size: flags.batch_size as usize,
            resource: resource(env)?,
        })
    }

    /// Returns the resource of every record.
    pub fn resource(&self, instance_id: &str) -> BTreeMap<String, String> {
        let mut resource = self.resource.clone();
        let id = resource.entry("service.instance.id".to_owned());
        id.or_insert_with(|| instance_id.to_owned());
        resource
    }
}

/// Returns what the exporter says of itself, and what `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say, which win. It is the resource
/// of spans: they are exported before the state file, which has the instance's id, is open.
///
/// # Errors
/// If a variable is wrong.
pub(super) fn resource(
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, String> {
    let own = [("service.name", SERVICE_NAME), ("service.version", VERSION)];
    let mut resource = BTreeMap::from(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(given) = Given::from_env("OTEL_RESOURCE_ATTRIBUTES", env) {
        resource.extend(given.pairs()?);
    }
    if let Some(name) = Given::from_env("OTEL_SERVICE_NAME", env) {
        resource.insert("service.name".to_owned(), name.value);
    }
    Ok(resource)
}

// === impl Connection ===

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {}", self.place(), self.protocol.as_str())
    }
}

impl Connection {
    /// Returns the connection of a signal, or `None` without an endpoint. `OTEL_<signal>_EXPORTER=none` unsets that of a
    /// variable.
    ///
    /// # Errors
    /// If a value is wrong.
    pub(crate) fn from_env(
        signal: &'static str,
        endpoint: Option<&str>,
        protocol: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let own = |name| Given::from_env(&format!("OTEL_EXPORTER_OTLP_{signal}_{name}"), env);
        let general = |name| Given::from_env(&format!("OTEL_EXPORTER_OTLP_{name}"), env);
        let variable = |name| own(name).or_else(|| general(name));
        let exporter = Given::from_env(&format!("OTEL_{signal}_EXPORTER"), env);
        if endpoint.is_none() && exporter.is_some_and(|given| given.value == "none") {
            return Ok(None);
        }
        let given = Given::new("--otlp.protocol", protocol).or_else(|| variable("PROTOCOL"));
        let protocol = parse(given, "give grpc or http/protobuf", Protocol::parse)?;
        let given = variable("INSECURE");
        let insecure = parse(given, "give true or false", |value| value.parse().ok())?;
        let flag = Given::new("--otlp.endpoint", endpoint);
        let is_flag = flag.is_some();
        let is_own = !is_flag && own("ENDPOINT").is_some();
        let Some(given) = flag.or_else(|| variable("ENDPOINT")) else {
            return Ok(None);
        };
        let mut endpoint = given.url(insecure.unwrap_or(false))?;
        let protocol = protocol.unwrap_or(match endpoint.port() {
            Some(GRPC_PORT) => Protocol::Grpc,
            _ => Protocol::HttpProtobuf,
        });
        endpoint.set_fragment(None);
        match protocol {
            Protocol::Grpc => {
                endpoint.set_path("");
                endpoint.set_query(None);
            }
            Protocol::HttpProtobuf if !given.value.contains("://") => {
                let place = given.value.split('?').next().unwrap_or_default();
                return Err(given.error(format!(
                    "'{place}' is wrong; http/protobuf needs a URL: give http://{place} or https://{place}, or --otlp.protocol grpc"
                )));
            }
            Protocol::HttpProtobuf if is_own || is_flag && endpoint.path() != "/" => {}
            Protocol::HttpProtobuf => {
                let base = endpoint.path().trim_end_matches('/');
                let path = format!("{base}/v1/{}", signal.to_lowercase());
                endpoint.set_path(&path);
            }
        }
        let headers = variable("HEADERS").map(|given| given.headers());
        let right = "give milliseconds as a whole number from 1 up, such as 10000";
        let milliseconds = |value: &str| value.parse().ok().filter(|ms: &u32| *ms > 0);
        let timeout = parse(variable("TIMEOUT"), right, milliseconds)?;
        let timeout = timeout.map(|ms| Duration::from_millis(ms.into()));
        let given = variable("COMPRESSION");
        let gzip = parse(given, "give gzip or none", |value| match value {
            "gzip" => Some(true),
            "none" => Some(false),
            _ => None,
        })?;
        let client = match (variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(given), None) | (None, Some(given)) => {
                let right = "give both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY";
                return Err(given.wrong(right));
            }
        };
        let pairs = endpoint.query().unwrap_or_default().split('&');
        let values = pairs.filter_map(|pair| Some(pair.split_once('=')?.1));
        let decoded = |value| percent_decode_str(value).decode_utf8_lossy().into_owned();
        Ok(Some(Self {
            query: values.map(decoded).collect(),
            endpoint,
            protocol,
            headers: headers.transpose()?.unwrap_or_default(),
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            gzip: gzip.unwrap_or(false),
            certificate: variable("CERTIFICATE"),
            client,
        }))
    }

    /// Returns the endpoint as it may be shown: a query may contain a token.
    pub fn place(&self) -> String {
        let mut place = self.endpoint.clone();
        place.set_query(None);
        place.into()
    }

    /// Returns what must not be shown of an answer: values of headers, whole and without `Bearer`, and of the query.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let headers = self.headers.values().filter_map(|v| v.to_str().ok());
        let headers = headers.flat_map(|v| [v, v.rsplit(' ').next().unwrap_or(v)]);
        headers.chain(self.query.iter().map(|v| &**v)).collect()
    }

    /// Returns a function that reads when the certificate of the exporter ends; `None` without one.
    pub fn client_certificate_not_after(
        &self,
    ) -> Option<impl Fn() -> Option<Timestamp> + Send + Sync + 'static> {
        let path = self.client.as_ref()?.0.value.clone();
        Some(move || {
            let pem = std::fs::read(&path).ok()?;
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            not_after(&chain.ok()?)
        })
    }

    /// Returns whether the collector is on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.endpoint.host_str().unwrap_or_default();
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }
}

// === impl Given ===

impl Given {
    /// Returns a value unless it is missing or empty.
    fn new(name: &str, value: Option<&str>) -> Option<Self> {
        let value = value?.trim();
        (!value.is_empty()).then(|| Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }

    fn from_env(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        Self::new(name, env(name).as_deref())
    }

    /// Reads the file of this name.
    ///
    /// # Errors
    /// If it cannot be read or is not PEM.
    pub fn read_pem(&self) -> Result<Vec<u8>, String> {
        let path = &self.value;
        let pem = std::fs::read(path)
            .map_err(|e| self.error(format!("cannot read '{path}': {e}; give a PEM file")))?;
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(self.error(format!("'{path}' is not PEM; give a PEM file")));
        }
        Ok(pem)
    }

    /// Returns an error that names the flag or variable.
    pub(super) fn error(&self, problem: impl fmt::Display) -> String {
        format!("{}: {problem}", self.name)
    }

    fn wrong(&self, right: &str) -> String {
        self.error(format!("'{}' is wrong; {right}", self.value))
    }

    fn url(&self, insecure: bool) -> Result<Url, String> {
        const RIGHT: &str = "give a URL such as http://localhost:4318, or host:port for grpc";
        let scheme = match (self.value.contains("://"), insecure) {
            (true, _) => "",
            (false, true) => "http://",
            (false, false) => "https://",
        };
        let url = Url::parse(&format!("{scheme}{}", self.value)).ok();
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let problem = match url.filter(is_http) {
            Some(url) if url.username().is_empty() && url.password().is_none() => return Ok(url),
            Some(_) => {
                "contains a user or password; give those in OTEL_EXPORTER_OTLP_HEADERS".to_owned()
            }
            // The value is not repeated: it may contain a password.
            None if self.value.contains('@') => RIGHT.to_owned(),
            None => {
                let shown = self.value.split('?').next().unwrap_or_default();
                format!("'{shown}' is wrong; {RIGHT}")
            }
        };
        Err(self.error(problem))
    }

    /// Returns pairs such as `key=value,…`, percent-decoded. The last of two with one key counts.
    fn pairs(&self) -> Result<Vec<(String, String)>, String> {
        let texts = self.value.split(',').map(str::trim);
        let texts = texts.filter(|text| !text.is_empty()).enumerate();
        texts
            .map(|(index, text)| pair(text).ok_or_else(|| self.wrong_pair(index)))
            .collect()
    }

    fn wrong_pair(&self, index: usize) -> String {
        self.error(format!(
            "pair {} is wrong (values are not shown); give key=value pairs joined by commas, percent-encoded",
            index + 1
        ))
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (index, (name, value)) in self.pairs()?.into_iter().enumerate() {
            let (Ok(name), Ok(mut value)) =
                (HeaderName::from_str(&name), HeaderValue::from_str(&value))
            else {
                return Err(self.wrong_pair(index));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// Parses a value in lower case; `right` says what it may be.
fn parse<T>(
    given: Option<Given>,
    right: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let parse =
        |given: Given| parse(&given.value.to_ascii_lowercase()).ok_or_else(|| given.wrong(right));
    given.map(parse).transpose()
}

/// Returns the percent-decoded key and value of `key=value`.
fn pair(text: &str) -> Option<(String, String)> {
    let decode = |text: &str| {
        let decoded = percent_decode_str(text.trim()).decode_utf8();
        Some(decoded.ok()?.into_owned())
    };
    let (key, value) = text.split_once('=')?;
    let key = decode(key).filter(|key| !key.is_empty())?;
    Some((key, decode(value)?))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
