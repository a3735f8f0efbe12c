//! The exporter's own spans, sent like log records: same resource, headers, certificates and compression. The exporter of
//! the OpenTelemetry SDK reads some of the variables too, but not as the specification has it: for it an empty variable of
//! the signal hides the general one.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    Compression, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use otlp_logs::{Connection, Protocol, Signal, known_phrases, resource};
use tonic::metadata::MetadataMap;

use crate::records::{USER_AGENT, own_resource};
use crate::util::error_chain;

/// An exporter that logs the first failure of many in a row.
#[derive(Debug)]
struct Logged {
    exporter: SpanExporter,
    endpoint: String,
    is_failing: AtomicBool,
}

/// Returns where spans go; `None` without an endpoint, or if `OTEL_SDK_DISABLED` or `OTEL_TRACES_EXPORTER=none` turns spans off.
///
/// # Errors
/// If a variable is wrong.
pub(crate) fn span_connection(
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Connection>, String> {
    let is_disabled = |value: String| value.trim().eq_ignore_ascii_case("true");
    if env("OTEL_SDK_DISABLED").is_some_and(is_disabled) {
        return Ok(None);
    }
    let read_file = exporter_web::read_file;
    Connection::from_env(Signal::TRACES, None, None, USER_AGENT, read_file, env)
}

/// Returns a provider for spans; `None` if no endpoint is set. Call it inside a tokio runtime.
///
/// # Errors
/// If a variable or a certificate is wrong.
pub fn span_provider(
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SdkTracerProvider>, String> {
    let Some(connection) = span_connection(env)? else {
        return Ok(None);
    };
    // Spans are exported before the state file, which has the instance's id, is open.
    let attributes = resource(&own_resource(), env).into_iter();
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes.map(|(key, value)| KeyValue::new(key, value)));
    let exporter = Logged {
        exporter: exporter(&connection)?,
        endpoint: connection.place(),
        is_failing: AtomicBool::default(),
    };
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build());
    Ok(Some(provider.build()))
}

fn exporter(connection: &Connection) -> Result<SpanExporter, String> {
    let exporter = match connection.protocol {
        Protocol::Grpc => {
            let metadata = MetadataMap::from_headers(connection.headers.clone());
            let mut builder = SpanExporter::builder()
                .with_tonic()
                .with_channel(connection.channel()?)
                .with_metadata(metadata)
                .with_timeout(connection.timeout);
            if connection.gzip {
                builder = builder.with_compression(Compression::Gzip);
            }
            builder.build()
        }
        Protocol::HttpProtobuf => {
            let client = reqwest::blocking::ClientBuilder::from(connection.http_client()?);
            let client = client
                .timeout(connection.timeout)
                .default_headers(connection.headers.clone());
            // A blocking client must not be built by a thread of the runtime.
            let client = std::thread::spawn(|| client.build()).join();
            let client = client.map_err(|_| "cannot start a thread".to_owned())?;
            let client = client.map_err(|error| error_chain(&error))?;
            let mut builder = SpanExporter::builder()
                .with_http()
                .with_endpoint(connection.endpoint.as_str())
                .with_http_client(client);
            if connection.gzip {
                builder = builder.with_compression(Compression::Gzip);
            }
            builder.build()
        }
    };
    exporter.map_err(|error| error_chain(&error))
}

// === impl Logged ===

impl opentelemetry_sdk::trace::SpanExporter for Logged {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                // The collector's own words may be part of the error.
                let known = known_phrases(&error.to_string());
                tracing::warn!(endpoint = self.endpoint, known, "cannot export spans");
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            _ => {}
        }
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
