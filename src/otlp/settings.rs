//! Where log records go and how: the flags `--otlp.*`, and OpenTelemetry's standard variables (specification, "OTLP Exporter Configuration").

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use super::endpoint;
use super::pairs;
use super::scrub::Scrubber;
use crate::metrics::build::VERSION;
use crate::metrics::certificates::not_after;

/// The variables' common beginning.
const PREFIX: &str = "OTEL_EXPORTER_OTLP_";

/// `…TIMEOUT` unless set: the specification's default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// `service.name` unless set.
const SERVICE_NAME: &str = "orgdata-exporter";

/// The flags, as they were given.
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

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where records go.
    pub target: Target,
    /// The most records of one request.
    pub batch_size: usize,
    /// What is taken out of entries.
    pub scrubber: Scrubber,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`; they win over what the exporter says of itself.
    pub resource: Vec<(String, String)>,
}

/// Where records go.
#[derive(Clone, Debug)]
pub enum Target {
    /// To a collector.
    Collector(Box<Connection>),
    /// To standard output, one readable line each.
    Stdout,
}

/// How a collector is reached.
#[derive(Clone)]
pub struct Connection {
    /// For HTTP with the path of log records, for gRPC without any.
    pub endpoint: Url,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// Sent with every request; they may hold tokens and are never shown.
    pub headers: HeaderMap,
    /// For one request, connecting included.
    pub timeout: Duration,
    /// Whether requests are gzipped. As the OpenTelemetry specification has it, they are not unless asked for.
    pub gzip: bool,
    /// Root certificates (PEM) beside the system's, and the variable that names the file.
    pub certificate: Option<PemFile>,
    /// Certificate and key (PEM) that the exporter shows.
    pub client: Option<(PemFile, PemFile)>,
}

/// A file that a variable names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile {
    /// The variable, for error messages.
    pub variable: String,
    /// The file.
    pub path: PathBuf,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    HttpProtobuf,
}

/// A wrong flag or variable: which one, what it says, and what would be right, in one line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct SettingsError {
    /// The flag or variable.
    pub name: String,
    /// The rest of the line.
    pub problem: String,
}

/// A value and the flag or variable it comes from.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) value: String,
}

/// The standard variables, as a process sees them.
pub(super) struct Variables<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

// === impl Settings ===

impl Settings {
    /// Settings from flags and variables; a flag wins. `None` without an endpoint: no records are sent.
    ///
    /// `env` reads one variable. An empty variable counts as one that is not set, as the specification demands.
    ///
    /// # Errors
    /// Where a value is wrong.
    pub fn from_env(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        let variables = Variables(env);
        let Some((endpoint, protocol)) = endpoint::resolve(flags, &variables)? else {
            return Ok(None);
        };
        let connection = Connection {
            endpoint,
            protocol,
            headers: variables
                .otlp("HEADERS")
                .map_or(Ok(HeaderMap::new()), |given| headers(&given))?,
            timeout: variables
                .otlp("TIMEOUT")
                .map_or(Ok(DEFAULT_TIMEOUT), |given| timeout(&given))?,
            gzip: variables
                .otlp("COMPRESSION")
                .map_or(Ok(false), |given| gzip(&given))?,
            certificate: variables.otlp("CERTIFICATE").map(PemFile::from),
            client: client(&variables)?,
        };
        Self::with_target(Target::Collector(Box::new(connection)), flags, &variables).map(Some)
    }

    /// Settings that print records to standard output, for the demonstration.
    ///
    /// # Errors
    /// Where a value is wrong.
    pub fn stdout(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        Self::with_target(Target::Stdout, flags, &Variables(env))
    }

    fn with_target(
        target: Target,
        flags: &Flags,
        variables: &Variables<'_>,
    ) -> Result<Self, SettingsError> {
        if flags.batch_size == 0 {
            return Err(SettingsError::new(
                "--otlp.batch-size",
                "0 records make no request; give a number from 1 up, such as 512",
            ));
        }
        if let Some(path) = flags
            .redact
            .iter()
            .find(|path| path.split('.').any(str::is_empty))
        {
            let problem = format!(
                "'{path}' is no path; give keys of metadata joined by dots, such as contact.email"
            );
            return Err(SettingsError::new("--otlp.redact", problem));
        }
        let scrubber = Scrubber {
            hide_user_names: !flags.user_names,
            redact: flags.redact.clone(),
        };
        let mut resource = match variables.get("OTEL_RESOURCE_ATTRIBUTES") {
            Some(given) => pairs::parse(&given, "key=value pairs joined by commas")?,
            None => Vec::new(),
        };
        if let Some(name) = variables.get("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name.value));
        }
        Ok(Self {
            target,
            batch_size: flags.batch_size,
            scrubber,
            resource,
        })
    }

    /// The resource of every record: who sends it, as the exporter knows it, and as the environment has it, which wins.
    pub fn resource(&self, instance_id: &str) -> Vec<(String, String)> {
        let own = [
            ("service.name", SERVICE_NAME),
            ("service.version", VERSION),
            ("service.instance.id", instance_id),
        ];
        let mut resource: Vec<(String, String)> = own
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (key, value) in &self.resource {
            match resource.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => known.clone_from(value),
                None => resource.push((key.clone(), value.clone())),
            }
        }
        resource
    }
}

// === impl Connection ===

impl Connection {
    /// The endpoint as it may be shown: a query may hold a token.
    pub fn place(&self) -> String {
        let mut place = self.endpoint.clone();
        place.set_query(None);
        place.into()
    }

    /// A look at when the certificate that is shown to the collector ends; `None` without one.
    pub fn client_certificate_not_after(
        &self,
    ) -> Option<impl Fn() -> Option<Timestamp> + Send + Sync + 'static> {
        let path = self.client.as_ref()?.0.path.clone();
        Some(move || {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(&std::fs::read(&path).ok()?).collect();
            not_after(&chain.ok()?)
        })
    }

    /// The collector's host is this machine.
    pub fn is_loopback(&self) -> bool {
        match self.endpoint.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => false,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint.as_str())
            .field("protocol", &self.protocol)
            .field(
                "headers",
                &self
                    .headers
                    .keys()
                    .map(HeaderName::as_str)
                    .collect::<Vec<_>>(),
            )
            .field("timeout", &self.timeout)
            .field("gzip", &self.gzip)
            .field("certificate", &self.certificate)
            .field("client", &self.client)
            .finish()
    }
}

// === impl Protocol ===

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
        })
    }
}

// === impl PemFile ===

impl From<Given> for PemFile {
    fn from(given: Given) -> Self {
        Self {
            variable: given.name,
            path: PathBuf::from(given.value),
        }
    }
}

impl PemFile {
    /// Reads the file.
    ///
    /// # Errors
    /// Where it cannot be read, or holds nothing in PEM form.
    pub fn read(&self) -> Result<Vec<u8>, SettingsError> {
        let path = self.path.display();
        let pem = std::fs::read(&self.path).map_err(|error| {
            SettingsError::new(
                &self.variable,
                format!("cannot read '{path}': {error}; give the path of a PEM file"),
            )
        })?;
        if pem.windows(11).any(|window| window == b"-----BEGIN ") {
            Ok(pem)
        } else {
            Err(SettingsError::new(
                &self.variable,
                format!("'{path}' holds nothing in PEM form; give a PEM file"),
            ))
        }
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
    pub(super) fn wrong(&self, right: &str) -> SettingsError {
        SettingsError::new(&self.name, format!("'{}' is wrong; {right}", self.value))
    }
}

// === impl Variables ===

impl Variables<'_> {
    pub(super) fn get(&self, name: &str) -> Option<Given> {
        let value = (self.0)(name)?.trim().to_owned();
        (!value.is_empty()).then(|| Given {
            name: name.to_owned(),
            value,
        })
    }

    /// The variable for log records, else the one for all signals.
    pub(super) fn otlp(&self, name: &str) -> Option<Given> {
        self.logs(name).or_else(|| self.general(name))
    }

    pub(super) fn logs(&self, name: &str) -> Option<Given> {
        self.get(&format!("{PREFIX}LOGS_{name}"))
    }

    pub(super) fn general(&self, name: &str) -> Option<Given> {
        self.get(&format!("{PREFIX}{name}"))
    }
}

fn headers(given: &Given) -> Result<HeaderMap, SettingsError> {
    const RIGHT: &str = "give name=value pairs joined by commas, their values percent-encoded";
    let mut headers = HeaderMap::new();
    // Values may be tokens: a message names the header, never what it says.
    for (index, (name, value)) in pairs::parse_hidden(given, RIGHT)?.into_iter().enumerate() {
        let wrong = |what: &str| {
            SettingsError::new(
                &given.name,
                format!(
                    "pair {} has no usable {what} (values are not shown); {RIGHT}",
                    index + 1
                ),
            )
        };
        let name = HeaderName::from_str(&name).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn timeout(given: &Given) -> Result<Duration, SettingsError> {
    match given.value.parse::<u32>() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds.into())),
        _ => Err(given.wrong("give milliseconds as a whole number from 1 up, such as 10000")),
    }
}

fn gzip(given: &Given) -> Result<bool, SettingsError> {
    match given.value.to_ascii_lowercase().as_str() {
        "gzip" => Ok(true),
        "none" => Ok(false),
        _ => Err(given.wrong("give gzip or none")),
    }
}

fn client(variables: &Variables<'_>) -> Result<Option<(PemFile, PemFile)>, SettingsError> {
    match (
        variables.otlp("CLIENT_CERTIFICATE"),
        variables.otlp("CLIENT_KEY"),
    ) {
        (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
        (None, None) => Ok(None),
        (Some(given), None) => Err(given
            .wrong("a client certificate needs its key: give OTEL_EXPORTER_OTLP_CLIENT_KEY too")),
        (None, Some(given)) => Err(given.wrong(
            "a client key needs its certificate: give OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE too",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(endpoint: Option<&str>, protocol: Option<&str>) -> Flags {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Flags {
            endpoint: own(endpoint),
            protocol: own(protocol),
            batch_size: 512,
            user_names: true,
            redact: Vec::new(),
        }
    }

    fn read(flags: &Flags, variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let find = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Settings::from_env(flags, &find)
    }

    /// The connection that an endpoint and these variables make.
    fn connection(variables: &[(&str, &str)]) -> Connection {
        let settings = read(&flags(Some("http://collector:4318"), None), variables)
            .expect("right")
            .expect("an endpoint");
        match settings.target {
            Target::Collector(connection) => *connection,
            Target::Stdout => panic!("a collector"),
        }
    }

    #[track_caller]
    fn assert_wrong(variables: &[(&str, &str)], expected: &str) {
        let error = read(&flags(Some("http://collector:4318"), None), variables)
            .expect_err("wrong")
            .to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn defaults_are_the_specification_s() {
        let connection = connection(&[]);
        assert_eq!(
            (
                connection.timeout,
                connection.gzip,
                connection.headers.len()
            ),
            (Duration::from_secs(10), false, 0)
        );
        assert!(connection.certificate.is_none() && connection.client.is_none());
    }

    #[test]
    fn variables_for_log_records_win_and_empty_ones_are_not_set() {
        let connection = connection(&[
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", " "),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=1,authorization=Bearer%20secret",
            ),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/client.pem"),
            ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "/key.pem"),
        ]);
        assert_eq!(
            (connection.timeout, connection.gzip),
            (Duration::from_millis(2500), true)
        );
        assert_eq!(connection.headers["authorization"], "Bearer secret");
        assert_eq!(
            connection.certificate.expect("given").variable,
            "OTEL_EXPORTER_OTLP_CERTIFICATE"
        );
        assert_eq!(
            connection.client.expect("given").1.variable,
            "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY"
        );
    }

    #[test]
    fn wrong_values_are_named_with_what_would_be_right() {
        assert_wrong(
            &[("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "10s")],
            "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: '10s' is wrong; give milliseconds as a whole number from 1 up, such as 10000",
        );
        assert_wrong(
            &[("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")],
            "OTEL_EXPORTER_OTLP_COMPRESSION: 'zstd' is wrong; give gzip or none",
        );
        assert_wrong(
            &[("OTEL_EXPORTER_OTLP_INSECURE", "yes")],
            "OTEL_EXPORTER_OTLP_INSECURE: 'yes' is wrong; give true or false",
        );
        assert_wrong(
            &[("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c.pem")],
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: '/c.pem' is wrong; a client certificate needs its key: give \
             OTEL_EXPORTER_OTLP_CLIENT_KEY too",
        );
        assert_wrong(
            &[("OTEL_RESOURCE_ATTRIBUTES", "a=1,b")],
            "OTEL_RESOURCE_ATTRIBUTES: 'b' is wrong; give key=value pairs joined by commas",
        );
        let zero = Flags {
            batch_size: 0,
            ..flags(Some("http://c:4318"), None)
        };
        assert!(
            read(&zero, &[])
                .expect_err("wrong")
                .to_string()
                .starts_with("--otlp.batch-size: 0 records")
        );
        let path = Flags {
            redact: vec!["a..b".to_owned()],
            ..flags(Some("http://c:4318"), None)
        };
        assert!(
            read(&path, &[])
                .expect_err("wrong")
                .to_string()
                .starts_with("--otlp.redact: 'a..b' is no path")
        );
    }

    #[test]
    fn headers_are_never_shown() {
        let shown = format!(
            "{:?}",
            connection(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")])
        );
        assert!(
            shown.contains("authorization") && !shown.contains("secret"),
            "{shown}"
        );
        for value in [
            "authorization=secret%",
            "authorization=secret%0a",
            "se cret=secret",
            "secret",
        ] {
            let flags = flags(Some("http://collector:4318"), None);
            let error = read(&flags, &[("OTEL_EXPORTER_OTLP_HEADERS", value)])
                .expect_err("wrong")
                .to_string();
            assert!(
                error.starts_with("OTEL_EXPORTER_OTLP_HEADERS: ") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_resource_is_the_exporter_s_and_the_environment_wins() {
        let settings = |variables| {
            read(&flags(Some("http://c:4318"), None), variables)
                .expect("right")
                .expect("an endpoint")
        };
        let names = |resource: Vec<(String, String)>| {
            resource
                .into_iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
        };
        let version = format!("service.version={}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            names(settings(&[]).resource("i")),
            [
                "service.name=orgdata-exporter",
                &version,
                "service.instance.id=i"
            ]
        );
        let given = settings(&[
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,team=a%20b"),
            ("OTEL_SERVICE_NAME", "audit"),
        ]);
        assert_eq!(
            names(given.resource("i")),
            [
                "service.name=audit",
                &version,
                "service.instance.id=i",
                "team=a b"
            ]
        );
    }

    #[test]
    fn a_certificate_that_is_none_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let pem = |path: PathBuf| PemFile {
            variable: "OTEL_EXPORTER_OTLP_CERTIFICATE".to_owned(),
            path,
        };
        let error = pem(file.path().to_owned())
            .read()
            .expect_err("empty")
            .to_string();
        assert!(
            error.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE: ")
                && error.contains("nothing in PEM form"),
            "{error}"
        );
        assert!(
            pem("/nowhere.pem".into())
                .read()
                .expect_err("absent")
                .to_string()
                .contains("cannot read '/nowhere.pem'")
        );
    }
}
