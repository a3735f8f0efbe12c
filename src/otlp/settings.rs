//! The target of log records and spans: the flags `--otlp.*` and the standard variables, as the OpenTelemetry
//! specification ("OTLP Exporter Configuration") defines them.
//!
//! - `--otlp.endpoint` wins over the variable of the signal, and that over `OTEL_EXPORTER_OTLP_ENDPOINT`.
//! - For HTTP the path of the signal is appended to the general endpoint, and to a flag without a path. The endpoint of a
//!   signal is used as it is.
//! - gRPC has no path. `host:port` without a scheme means TLS unless `OTEL_EXPORTER_OTLP_[signal_]INSECURE` is true.
//! - Without a protocol, port 4317 means gRPC, which is registered for it, and any other port `http/protobuf`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use super::encode::Redaction;
use crate::metrics::build::VERSION;
use crate::metrics::certificates::not_after;
use crate::util::labels;

/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default of `OTEL_SERVICE_NAME`.
pub(crate) const SERVICE_NAME: &str = "orgdata-exporter";

/// Log records: `OTEL_EXPORTER_OTLP_LOGS_…`.
pub(crate) const LOGS: &str = "LOGS";

/// Spans: `OTEL_EXPORTER_OTLP_TRACES_…`.
pub(crate) const TRACES: &str = "TRACES";

/// The port that is registered for OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// The flags.
#[derive(Clone, Debug)]
pub struct Flags {
    /// `--otlp.endpoint`.
    pub endpoint: Option<String>,
    /// `--otlp.protocol`.
    pub protocol: Option<String>,
    /// `--otlp.batch-size`.
    pub batch_size: usize,
    /// `--otlp.user-names`.
    pub user_names: bool,
    /// `--otlp.redact`.
    pub redact: Vec<String>,
}

/// Checked settings of log records.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where records go.
    pub target: Target,
    /// The maximum number of records in a request.
    pub batch_size: usize,
    /// What is removed from entries.
    pub redaction: Redaction,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`.
    pub resource: Vec<(String, String)>,
}

/// Where records go.
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

/// A wrong flag or variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct SettingsError {
    /// The flag or variable.
    pub name: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// A value, and the flag or variable that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The flag or variable.
    pub name: String,
    /// The value without white space around it.
    pub value: String,
}

/// The standard variables of a signal.
struct Variables<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    /// A kind of telemetry with variables and a path of its own: [`LOGS`] or [`TRACES`].
    signal: &'static str,
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
    ) -> Result<Option<Self>, SettingsError> {
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
    ) -> Result<Self, SettingsError> {
        if flags.batch_size == 0 {
            let problem = "0 is out of range; give a number from 1 up, such as 512";
            return Err(SettingsError::new("--otlp.batch-size", problem));
        }
        let is_wrong = |path: &&String| path.split('.').any(str::is_empty);
        if let Some(path) = flags.redact.iter().find(is_wrong) {
            let right = "give keys of metadata joined by dots, such as contact.email";
            let problem = format!("'{path}' is not a path; {right}");
            return Err(SettingsError::new("--otlp.redact", problem));
        }
        let signal = LOGS;
        Ok(Self {
            target,
            batch_size: flags.batch_size,
            redaction: Redaction {
                hide_user_names: !flags.user_names,
                paths: flags.redact.clone(),
            },
            resource: Variables { env, signal }.resource()?,
        })
    }

    /// Returns the resource of every record. What the environment says wins.
    pub fn resource(&self, instance_id: &str) -> Vec<(String, String)> {
        let own = [
            ("service.name", SERVICE_NAME),
            ("service.version", VERSION),
            ("service.instance.id", instance_id),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut resource = Vec::new();
        for (key, value) in own.iter().chain(&self.resource) {
            set(&mut resource, key, value);
        }
        resource
    }
}

// === impl Connection ===

impl Connection {
    /// Returns the connection of a signal, or `None` without an endpoint or with `OTEL_<signal>_EXPORTER=none`.
    ///
    /// # Errors
    /// If a value is wrong.
    pub(crate) fn from_env(
        signal: &'static str,
        endpoint: Option<&str>,
        protocol: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        let variables = Variables { env, signal };
        let exporter = variables.get(&format!("OTEL_{signal}_EXPORTER"));
        if exporter.is_some_and(|given| given.value == "none") {
            return Ok(None);
        }
        let flag = Given::new("--otlp.protocol", protocol);
        let protocol = flag.or_else(|| variables.otlp("PROTOCOL"));
        let known = |text: &str| {
            Protocol::ALL
                .into_iter()
                .find(|known| known.as_str() == text)
        };
        let parse = |given: Given| given.parse("give grpc or http/protobuf", known);
        let protocol = protocol.map(parse).transpose()?;
        let insecure =
            variables.parse("INSECURE", "give true or false", |value| value.parse().ok());
        let insecure = insecure?.unwrap_or(false);
        let flag = Given::new("--otlp.endpoint", endpoint);
        let (given, is_own, is_flag) = match (flag, variables.own("ENDPOINT")) {
            (Some(flag), _) => (flag, false, true),
            (None, Some(own)) => (own, true, false),
            (None, None) => match variables.general("ENDPOINT") {
                Some(general) => (general, false, false),
                None => return Ok(None),
            },
        };
        let mut endpoint = given.url(insecure)?;
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
                let place = &given.value;
                return Err(given.wrong(&format!(
                    "http/protobuf needs a URL: give http://{place} or https://{place}, or --otlp.protocol grpc"
                )));
            }
            Protocol::HttpProtobuf if is_own || is_flag && endpoint.path() != "/" => {}
            Protocol::HttpProtobuf => {
                let base = endpoint.path().trim_end_matches('/');
                let path = format!("{base}/v1/{}", signal.to_lowercase());
                endpoint.set_path(&path);
            }
        }
        let headers = variables.otlp("HEADERS").map(|given| given.headers());
        let right = "give milliseconds as a whole number from 1 up, such as 10000";
        let milliseconds = |value: &str| value.parse().ok().filter(|ms: &u32| *ms > 0);
        let timeout = variables.parse("TIMEOUT", right, milliseconds)?;
        let timeout = timeout.map(|ms| Duration::from_millis(ms.into()));
        let gzip = variables.parse("COMPRESSION", "give gzip or none", |value| match value {
            "gzip" => Some(true),
            "none" => Some(false),
            _ => None,
        })?;
        Ok(Some(Self {
            endpoint,
            protocol,
            headers: headers.transpose()?.unwrap_or_default(),
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            gzip: gzip.unwrap_or(false),
            certificate: variables.otlp("CERTIFICATE"),
            client: variables.client()?,
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
        let query = self.endpoint.query().into_iter().flat_map(|q| q.split('&'));
        let query = query.filter_map(|pair| Some(pair.split_once('=')?.1));
        headers.chain(query).collect()
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

// === impl Protocol ===

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl SettingsError ===

impl SettingsError {
    pub(super) fn new(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            problem: problem.into(),
        }
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

    /// Reads the file of this name.
    ///
    /// # Errors
    /// If it cannot be read or is not PEM.
    pub fn read_pem(&self) -> Result<Vec<u8>, SettingsError> {
        let path = &self.value;
        let wrong = |problem| SettingsError::new(&self.name, problem);
        let pem = std::fs::read(path)
            .map_err(|e| wrong(format!("cannot read '{path}': {e}; give a PEM file")))?;
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(wrong(format!("'{path}' is not PEM; give a PEM file")));
        }
        Ok(pem)
    }

    fn wrong(&self, right: &str) -> SettingsError {
        SettingsError::new(&self.name, format!("'{}' is wrong; {right}", self.value))
    }

    /// Parses the value in lower case; `right` says what it may be.
    fn parse<T>(&self, right: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, SettingsError> {
        parse(&self.value.to_ascii_lowercase()).ok_or_else(|| self.wrong(right))
    }

    fn url(&self, insecure: bool) -> Result<Url, SettingsError> {
        const RIGHT: &str = "give a URL such as http://localhost:4318, or host:port for grpc";
        let scheme = match (self.value.contains("://"), insecure) {
            (true, _) => "",
            (false, true) => "http://",
            (false, false) => "https://",
        };
        let secret = "contains a user or password; give those in OTEL_EXPORTER_OTLP_HEADERS";
        match Url::parse(&format!("{scheme}{}", self.value)) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                Err(SettingsError::new(&self.name, secret))
            }
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
            // The value is not repeated: it may contain a password.
            _ if self.value.contains('@') => Err(SettingsError::new(&self.name, RIGHT)),
            _ => {
                let shown = self.value.split('?').next().unwrap_or_default();
                let problem = format!("'{shown}' is wrong; {RIGHT}");
                Err(SettingsError::new(&self.name, problem))
            }
        }
    }

    /// Returns pairs such as `key=value,…`, percent-decoded. The last of two with one key counts.
    fn pairs(&self) -> Result<Vec<(String, String)>, SettingsError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let texts = self
            .value
            .split(',')
            .map(str::trim)
            .filter(|t| !t.is_empty());
        for (index, text) in texts.enumerate() {
            let decoded = text.split_once('=').and_then(|(key, value)| {
                let decode = |text: &str| {
                    let decoded = percent_decode_str(text.trim()).decode_utf8().ok()?;
                    Some(decoded.into_owned())
                };
                let key = decode(key).filter(|key| !key.is_empty())?;
                Some((key, decode(value)?))
            });
            let Some((key, value)) = decoded else {
                return Err(self.wrong_pair(index));
            };
            set(&mut pairs, &key, &value);
        }
        Ok(pairs)
    }

    fn wrong_pair(&self, index: usize) -> SettingsError {
        let problem = format!(
            "pair {} is wrong (values are not shown); give key=value pairs joined by commas, percent-encoded",
            index + 1
        );
        SettingsError::new(&self.name, problem)
    }

    fn headers(&self) -> Result<HeaderMap, SettingsError> {
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

// === impl Variables ===

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<Given> {
        Given::new(name, (self.env)(name).as_deref())
    }

    /// Returns the variable of the signal, else the one for all signals.
    fn otlp(&self, name: &str) -> Option<Given> {
        self.own(name).or_else(|| self.general(name))
    }

    fn parse<T>(
        &self,
        name: &str,
        right: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let given = self.otlp(name);
        given.map(|given| given.parse(right, parse)).transpose()
    }

    fn own(&self, name: &str) -> Option<Given> {
        let signal = self.signal;
        self.get(&format!("OTEL_EXPORTER_OTLP_{signal}_{name}"))
    }

    fn general(&self, name: &str) -> Option<Given> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{name}"))
    }

    fn client(&self) -> Result<Option<(Given, Given)>, SettingsError> {
        match (self.otlp("CLIENT_CERTIFICATE"), self.otlp("CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(given), None) => Err(given
                .wrong("a client certificate needs a key; give OTEL_EXPORTER_OTLP_CLIENT_KEY too")),
            (None, Some(given)) => Err(given.wrong(
                "a client key needs a certificate; give OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE too",
            )),
        }
    }

    fn resource(&self) -> Result<Vec<(String, String)>, SettingsError> {
        let attributes = self
            .get("OTEL_RESOURCE_ATTRIBUTES")
            .map(|given| given.pairs());
        let mut resource = attributes.transpose()?.unwrap_or_default();
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            set(&mut resource, "service.name", &name.value);
        }
        Ok(resource)
    }
}

/// Sets the value of a key.
fn set(pairs: &mut Vec<(String, String)>, key: &str, value: &str) {
    match pairs.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => value.clone_into(known),
        None => pairs.push((key.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
