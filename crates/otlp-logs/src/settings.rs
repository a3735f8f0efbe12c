//! How a collector is reached: the standard variables, as the OpenTelemetry specification ("OTLP Exporter Configuration")
//! defines them.
//!
//! - An address that the caller gives wins over the variable of the signal, and that over `OTEL_EXPORTER_OTLP_ENDPOINT`.
//! - For HTTP the path of the signal is appended to the general endpoint, and to the caller's if it has no path. The endpoint of
//!   a signal is used as it is.
//! - gRPC has no path. `host:port` without a scheme means TLS unless `OTEL_EXPORTER_OTLP_[signal_]INSECURE` is true.
//! - Without a protocol, port 4317 means gRPC, which is registered for it, and any other port `http/protobuf`.
//! - An empty variable is an unset one, and a wrong one that has no effect is no error.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use connections::{ReadFile, SecretFile};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use url::Url;

/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent connection is checked.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(60);

/// The maximum size of an answer, in bytes: it is a number and a message, but some say something about each record.
pub(crate) const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// The variable with attributes of the resource.
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The port that is registered for OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// What is exported, and so which variables apply: `OTEL_EXPORTER_OTLP_LOGS_…` or `OTEL_EXPORTER_OTLP_TRACES_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(&'static str);

/// How a collector is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// What is exported.
    pub signal: Signal,
    /// The address; for HTTP with the path of the signal, for gRPC without one.
    pub endpoint: Url,
    /// The flag or variable that the address comes from, and the scheme that was taken if it has none.
    pub origin: String,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// Headers of every request. They may contain tokens and are never shown.
    pub headers: HeaderMap,
    /// The file with a token, which is read for each request and sent as `authorization: Bearer`.
    pub bearer_token: Option<SecretFile>,
    /// The maximum duration of a request.
    pub timeout: Duration,
    /// Whether requests are compressed with gzip.
    pub gzip: bool,
    /// The file with root certificates (PEM) in place of the system's.
    pub certificate: Option<Given>,
    /// The files with certificate and key (PEM) of the client.
    pub client: Option<(Given, Given)>,
    /// The name of the client in requests.
    pub user_agent: &'static str,
    /// Reads these files.
    pub read_file: ReadFile,
}

/// The encoding of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    HttpProtobuf,
}

/// A value, and the flag or variable that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The flag or variable.
    pub name: String,
    /// The value without white space around it.
    pub value: String,
}

/// Reads a variable.
type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Returns a resource: `own` attributes, and those of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, which win. If
/// `OTEL_RESOURCE_ATTRIBUTES` is wrong, it has no effect, as the specification wants it.
pub fn resource(own: &[(&str, &str)], env: Env<'_>) -> BTreeMap<String, String> {
    let own = own
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let mut resource: BTreeMap<_, _> = own.collect();
    let given = Given::from_env(ATTRIBUTES, env).map(|given| given.pairs());
    resource.extend(given.into_iter().flatten().flatten());
    if let Some(name) = Given::from_env("OTEL_SERVICE_NAME", env) {
        resource.insert("service.name".to_owned(), name.value);
    }
    resource
}

/// Returns what is wrong with `OTEL_RESOURCE_ATTRIBUTES`, which has no effect then.
pub fn wrong_attributes(env: Env<'_>) -> Option<String> {
    Given::from_env(ATTRIBUTES, env)?.pairs().err()
}

// === impl Signal ===

impl Signal {
    /// Log records.
    pub const LOGS: Self = Self("LOGS");
    /// Spans.
    pub const TRACES: Self = Self("TRACES");
}

// === impl Protocol ===

impl Protocol {
    /// Returns the value of `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut all = [Self::Grpc, Self::HttpProtobuf].into_iter();
        all.find(|protocol| protocol.as_str() == text)
    }
}

// === impl Connection ===

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, protocol) = (self.place(), self.protocol.as_str());
        write!(f, "{place} over {protocol} ({})", self.origin)
    }
}

impl Connection {
    /// Returns the connection of a signal, or `None` without an endpoint. The caller may give an endpoint and a protocol, each
    /// with its name. `OTEL_<signal>_EXPORTER=none` unsets the endpoint of a variable.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn from_env(
        signal: Signal,
        endpoint: Option<Given>,
        protocol: Option<Given>,
        user_agent: &'static str,
        read_file: ReadFile,
        env: Env<'_>,
    ) -> Result<Option<Self>, String> {
        let Signal(name_of_signal) = signal;
        let own =
            |name| Given::from_env(&format!("OTEL_EXPORTER_OTLP_{name_of_signal}_{name}"), env);
        let general = |name| Given::from_env(&format!("OTEL_EXPORTER_OTLP_{name}"), env);
        let variable = |name| own(name).or_else(|| general(name));
        let exporter = Given::from_env(&format!("OTEL_{name_of_signal}_EXPORTER"), env);
        let is_none = |given: Given| given.value.eq_ignore_ascii_case("none");
        if endpoint.is_none() && exporter.is_some_and(is_none) {
            return Ok(None);
        }
        let is_given = endpoint.is_some();
        let is_own = !is_given && own("ENDPOINT").is_some();
        let Some(given) = endpoint.or_else(|| variable("ENDPOINT")) else {
            return Ok(None);
        };
        let insecure = match given.has_scheme() {
            true => None,
            false => variable("INSECURE"),
        };
        let insecure = insecure.map(|given| given.insecure()).transpose()?;
        let mut endpoint = given.url(insecure.unwrap_or(false))?;
        let origin = match given.has_scheme() {
            true => given.name.clone(),
            false => format!("{}, without a scheme: {}", given.name, endpoint.scheme()),
        };
        let protocol = protocol.or_else(|| variable("PROTOCOL"));
        let protocol = protocol.map(|given| given.protocol()).transpose()?;
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
            Protocol::HttpProtobuf if !given.has_scheme() => {
                let place = given.place();
                return Err(given.error(format!(
                    "'{place}' is wrong; http/protobuf needs a URL: give http://{place} or https://{place}, or the protocol grpc"
                )));
            }
            Protocol::HttpProtobuf if is_own || is_given && endpoint.path() != "/" => {}
            Protocol::HttpProtobuf => {
                let base = endpoint.path().trim_end_matches('/');
                let path = format!("{base}/v1/{}", name_of_signal.to_lowercase());
                endpoint.set_path(&path);
            }
        }
        let headers = variable("HEADERS").map(|given| given.headers());
        let timeout = variable("TIMEOUT").map(|given| given.timeout());
        let gzip = variable("COMPRESSION").map(|given| given.gzip());
        // Without TLS, certificates have no effect.
        let is_tls = endpoint.scheme() == "https";
        let file = |name| variable(name).filter(|_| is_tls);
        let client = match (file("CLIENT_CERTIFICATE"), file("CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(given), None) | (None, Some(given)) => {
                let right = "give both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY";
                return Err(given.wrong(right));
            }
        };
        Ok(Some(Self {
            signal,
            endpoint,
            origin,
            protocol,
            headers: headers.transpose()?.unwrap_or_default(),
            bearer_token: None,
            timeout: timeout.transpose()?.unwrap_or(DEFAULT_TIMEOUT),
            gzip: gzip.transpose()?.unwrap_or(false),
            certificate: file("CERTIFICATE"),
            client,
            user_agent,
            read_file,
        }))
    }

    /// Takes a token from a file, which is read for each request.
    ///
    /// # Errors
    /// If the headers have an authorization too, or the file has no usable token.
    pub fn with_bearer_token(mut self, file: Given) -> Result<Self, String> {
        if self.headers.contains_key(AUTHORIZATION) {
            return Err(file.error(
                "OTEL_EXPORTER_OTLP_HEADERS has an authorization header too; remove one of the two",
            ));
        }
        let token = SecretFile {
            name: "bearer token",
            path: (&file.value).into(),
        };
        token
            .check(self.read_file)
            .map_err(|error| file.error(error))?;
        self.bearer_token = Some(token);
        Ok(self)
    }

    /// Returns the headers of a request. The file of the token has to be read until a deadline.
    ///
    /// # Errors
    /// If there is no usable token. The message never contains it.
    pub(crate) async fn request_headers(&self, deadline: Instant) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(file) = &self.bearer_token {
            let token = file.read(self.read_file, deadline).await?;
            let bearer = [b"Bearer ", token.as_bytes()].concat();
            let mut bearer = HeaderValue::from_bytes(&bearer).map_err(|error| error.to_string())?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(headers)
    }

    /// Returns the endpoint as it may be shown: a query may contain a token.
    pub fn place(&self) -> String {
        let mut place = self.endpoint.clone();
        place.set_query(None);
        place.into()
    }

    /// Returns host and port, and where they come from.
    pub(crate) fn peer(&self) -> String {
        let host = self.endpoint.host_str().unwrap_or_default();
        let port = self.endpoint.port_or_known_default().unwrap_or_default();
        format!("{host}, port {port} ({})", self.origin)
    }

    /// Returns whether the collector is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        connections::is_loopback(self.endpoint.host_str().unwrap_or_default())
    }
}

// === impl Given ===

impl Given {
    /// Returns a value unless it is missing or empty.
    pub fn new(name: &str, value: Option<&str>) -> Option<Self> {
        let value = value?.trim();
        (!value.is_empty()).then(|| Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }

    fn from_env(name: &str, env: Env<'_>) -> Option<Self> {
        Self::new(name, env(name).as_deref())
    }

    /// Reads the file of this name.
    ///
    /// # Errors
    /// If it cannot be read or is not PEM.
    pub(crate) fn read_pem(&self, read: ReadFile) -> Result<Vec<u8>, String> {
        let path = &self.value;
        let pem = read(path.as_ref())
            .map_err(|e| self.error(format!("cannot read '{path}': {e}; give a PEM file")))?;
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(self.error(format!("'{path}' is not PEM; give a PEM file")));
        }
        Ok(pem)
    }

    /// Returns an error that names the flag or variable.
    pub(crate) fn error(&self, problem: impl fmt::Display) -> String {
        format!("{}: {problem}", self.name)
    }

    fn wrong(&self, right: &str) -> String {
        self.error(format!("'{}' is wrong; {right}", self.value))
    }

    /// Parses the value in lower case; `right` says what it may be.
    fn parse<T>(&self, right: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let value = self.value.to_ascii_lowercase();
        parse(&value).ok_or_else(|| self.wrong(right))
    }

    fn protocol(&self) -> Result<Protocol, String> {
        self.parse("give grpc or http/protobuf", Protocol::parse)
    }

    fn insecure(&self) -> Result<bool, String> {
        self.parse("give true or false", |value| value.parse().ok())
    }

    fn timeout(&self) -> Result<Duration, String> {
        let right = "give milliseconds as a whole number from 1 up, such as 10000";
        let milliseconds = |value: &str| value.parse().ok().filter(|ms: &u32| *ms > 0);
        let milliseconds = self.parse(right, milliseconds)?;
        Ok(Duration::from_millis(milliseconds.into()))
    }

    fn gzip(&self) -> Result<bool, String> {
        self.parse("give gzip or none", |value| match value {
            "gzip" => Some(true),
            "none" => Some(false),
            _ => None,
        })
    }

    fn has_scheme(&self) -> bool {
        self.value.contains("://")
    }

    /// Returns a URL as it may be shown: what follows its path may be a token.
    fn place(&self) -> &str {
        let end = self.value.find(['?', '#']);
        &self.value[..end.unwrap_or(self.value.len())]
    }

    fn url(&self, insecure: bool) -> Result<Url, String> {
        const RIGHT: &str = "give a URL such as http://localhost:4318, or host:port for grpc";
        let scheme = match (self.has_scheme(), insecure) {
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
            None => format!("'{}' is wrong; {RIGHT}", self.place()),
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
pub(crate) mod tests;
