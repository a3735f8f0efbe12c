//! The exporter's own spans: sent with the OpenTelemetry SDK, with the certificates and headers of the log records.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use percent_encoding::percent_decode_str;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use url::Url;

use crate::util::error_chain;
use crate::util::text::{one_line, sanitize};

/// The variable with the endpoint for spans.
const OWN: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The variable with the endpoint for all signals.
const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The maximum time for one export over HTTP.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where spans are sent and how. Headers, time limit and compression are read from the standard variables by the SDK.
#[derive(Clone)]
pub struct TraceSettings {
    /// The variable that names the endpoint.
    variable: &'static str,
    /// The endpoint; for HTTP with its path.
    endpoint: String,
    is_grpc: bool,
    /// The file with the root certificates that replace the system's.
    certificate: Option<String>,
    /// The files with the client certificate and its key.
    client: Option<(String, String)>,
    /// The values of headers, and the query of the endpoint.
    secrets: Vec<String>,
}

/// Logs one warning when exports begin to fail, and one line when they succeed again.
#[derive(Debug)]
struct Reporting {
    exporter: SpanExporter,
    secrets: Vec<String>,
    is_failing: AtomicBool,
}

// === impl TraceSettings ===

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSettings")
            .field("variable", &self.variable)
            .field("is_grpc", &self.is_grpc)
            .finish_non_exhaustive()
    }
}

impl TraceSettings {
    /// Reads the standard variables. Returns nothing if no endpoint is set, or if `OTEL_SDK_DISABLED` or
    /// `OTEL_TRACES_EXPORTER=none` disables spans.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let get = |name: &str| {
            let value = env(name)?.trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let otlp = |name: &str| {
            get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_true = |value: String| value.eq_ignore_ascii_case("true");
        if get("OTEL_SDK_DISABLED").is_some_and(is_true)
            || get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
        {
            return None;
        }
        let (variable, endpoint) = match get(OWN) {
            Some(endpoint) => (OWN, endpoint),
            None => (GENERAL, get(GENERAL)?),
        };
        let is_grpc = match otlp("PROTOCOL") {
            Some(protocol) => protocol == "grpc",
            None => endpoint.trim_end_matches('/').ends_with(":4317"),
        };
        let endpoint = match variable {
            GENERAL if !is_grpc => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            _ => endpoint,
        };
        let headers = otlp("HEADERS").unwrap_or_default();
        let mut secrets: Vec<String> = headers
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(_, value)| percent_decode_str(value.trim()).decode_utf8_lossy().into())
            .collect();
        // A service may repeat a token without its scheme.
        let tokens = secrets.iter().filter_map(|value| value.split_once(' '));
        secrets.extend(
            tokens
                .map(|(_, token)| token.to_owned())
                .collect::<Vec<_>>(),
        );
        secrets.extend(endpoint.split_once('?').map(|(_, query)| query.to_owned()));
        Some(Self {
            variable,
            is_grpc,
            certificate: otlp("CERTIFICATE"),
            client: otlp("CLIENT_CERTIFICATE").zip(otlp("CLIENT_KEY")),
            secrets,
            endpoint,
        })
    }

    /// Returns a provider that exports spans. Call it in the context of the runtime.
    ///
    /// # Errors
    /// Returns why spans cannot be exported, without the endpoint, which may contain a password.
    pub(super) fn provider(&self) -> Result<SdkTracerProvider, String> {
        if !self.has_usable_endpoint() {
            return Err(format!(
                "{} is not a URL of scheme, host and port without user and password (the value is not shown)",
                self.variable
            ));
        }
        let exporter = if self.is_grpc {
            self.grpc_exporter()?
        } else {
            self.http_exporter()?
        };
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty()) {
            resource = resource.with_service_name("orgdata-exporter");
        }
        Ok(SdkTracerProvider::builder()
            .with_batch_exporter(Reporting {
                exporter,
                secrets: self.secrets.clone(),
                is_failing: AtomicBool::new(false),
            })
            .with_resource(resource.build())
            .build())
    }

    fn has_usable_endpoint(&self) -> bool {
        // Without a scheme the SDK adds one, as OTEL_EXPORTER_OTLP_INSECURE says.
        let url = match self.endpoint.contains("://") {
            true => Url::parse(&self.endpoint),
            false => Url::parse(&format!("https://{}", self.endpoint)),
        };
        url.is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
        })
    }

    fn grpc_exporter(&self) -> Result<SpanExporter, String> {
        let mut builder = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&self.endpoint);
        if !self.endpoint.starts_with("http://") {
            let mut tls = ClientTlsConfig::new();
            tls = match &self.certificate {
                Some(path) => tls.ca_certificate(Certificate::from_pem(read(path)?)),
                None => tls.with_enabled_roots(),
            };
            if let Some((certificate, key)) = &self.client {
                tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            builder = builder.with_tls_config(tls);
        }
        builder.build().map_err(|error| self.safe(&error))
    }

    fn http_exporter(&self) -> Result<SpanExporter, String> {
        let mut builder = reqwest::blocking::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(path) = &self.certificate {
            let certificates = reqwest::Certificate::from_pem_bundle(&read(path)?);
            builder = builder.tls_certs_only(certificates.map_err(|error| self.safe(&error))?);
        }
        if let Some((certificate, key)) = &self.client {
            let pem = [read(certificate)?, read(key)?].join(&b'\n');
            let identity = reqwest::Identity::from_pem(&pem);
            builder = builder.identity(identity.map_err(|error| self.safe(&error))?);
        }
        // A blocking client cannot be built in the context of a runtime.
        let client = std::thread::scope(|scope| scope.spawn(|| builder.build()).join())
            .map_err(|_| "cannot build the HTTP client".to_owned())?
            .map_err(|error| self.safe(&error))?;
        SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(&self.endpoint)
            .build()
            .map_err(|error| self.safe(&error))
    }

    fn safe(&self, error: &dyn std::error::Error) -> String {
        safe(&error_chain(error), &self.secrets)
    }
}

// === impl Reporting ===

impl opentelemetry_sdk::trace::SpanExporter for Reporting {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(spans).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                let error = safe(&error_chain(error), &self.secrets);
                tracing::warn!(%error, "cannot export spans; they are dropped until the collector accepts them");
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn safe(text: &str, secrets: &[String]) -> String {
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    sanitize(text, &secrets)
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| one_line(&format!("cannot read {path}: {error}"), 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Option<TraceSettings> {
        TraceSettings::from_env(&|name| {
            let known = variables.iter().find(|(known, _)| *known == name)?;
            Some(known.1.to_owned())
        })
    }

    #[test]
    fn the_standard_variables_say_where_spans_go() {
        for (variables, expected) in [
            (&[][..], None),
            (
                &[(GENERAL, "http://c:4318/")],
                Some(("http://c:4318/v1/traces", false)),
            ),
            (&[(GENERAL, "http://c:4317")], Some(("http://c:4317", true))),
            (
                &[(GENERAL, "http://c:4318"), (OWN, "http://t:1/x")],
                Some(("http://t:1/x", false)),
            ),
            (
                &[
                    (GENERAL, "http://c:1"),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ],
                Some(("http://c:1", true)),
            ),
            (
                &[(GENERAL, "http://c:4318"), ("OTEL_SDK_DISABLED", "TRUE")],
                None,
            ),
            (
                &[(GENERAL, "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")],
                None,
            ),
        ] {
            let settings = settings(variables);
            let found = settings
                .as_ref()
                .map(|found| (&*found.endpoint, found.is_grpc));
            assert_eq!(found, expected, "{variables:?}");
        }
    }

    #[tokio::test]
    async fn an_endpoint_with_a_password_is_refused_and_not_shown() {
        for endpoint in [
            "http://me:hunter22@c:4318",
            "http://me:hunter22@[c",
            "hunter22 :1",
        ] {
            let settings = settings(&[(OWN, endpoint)]).expect("an endpoint");
            let problem = settings.provider().expect_err(endpoint);
            assert!(problem.contains(OWN), "{problem}");
            for text in [problem, format!("{settings:?}")] {
                assert!(!text.contains("hunter22"), "{text}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn certificates_are_those_of_the_records() {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let tls = |name: &str| format!("{}/tests/support/tls/{name}", env!("CARGO_MANIFEST_DIR"));
        for protocol in ["grpc", "http/protobuf"] {
            for (certificate, is_good) in [(tls("ca.pem"), true), (tls("none.pem"), false)] {
                let settings = settings(&[
                    (GENERAL, "https://localhost:1"),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                    ("OTEL_EXPORTER_OTLP_CERTIFICATE", &certificate),
                    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &tls("client.pem")),
                    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &tls("client.key")),
                ])
                .expect("an endpoint");
                match settings.provider() {
                    Ok(_) => assert!(is_good, "{protocol}"),
                    Err(problem) => assert!(!is_good && problem.contains("none.pem"), "{problem}"),
                }
            }
        }
    }

    #[test]
    fn a_secret_of_the_variables_is_not_shown() {
        let settings = settings(&[
            (OWN, "http://c:4318/x?api_key=hunter22"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20letmein1,x=y",
            ),
        ])
        .expect("an endpoint");
        let shown = safe(
            "Bearer letmein1, letmein1, /x?api_key=hunter22",
            &settings.secrets,
        );
        assert_eq!(shown, "[secret], [secret], /x?[secret]");
    }
}
