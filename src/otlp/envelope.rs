//! Requests from records that were encoded once: sizes are exact, and a request that is sent again or in halves costs no second encoding.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::wire::{begin, part, part_len};
use crate::metrics::build::VERSION;

/// The scope of every record.
pub const SCOPE: &str = "orgdata.audit";

/// Field numbers of the protocol's messages, under the names they have there.
mod field {
    pub(super) const REQUEST_RESOURCE_LOGS: u8 = 1;
    pub(super) const RESOURCE_LOGS_RESOURCE: u8 = 1;
    pub(super) const RESOURCE_LOGS_SCOPE_LOGS: u8 = 2;
    pub(super) const SCOPE_LOGS_SCOPE: u8 = 1;
    pub(super) const SCOPE_LOGS_LOG_RECORDS: u8 = 2;
}

/// What surrounds the records of every request: resource and scope, encoded.
#[derive(Clone, Debug)]
pub struct Envelope {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

// === impl Envelope ===

impl Envelope {
    /// An envelope for one resource.
    pub fn new(attributes: &[(String, String)]) -> Self {
        let attributes = attributes.iter().map(|(key, value)| {
            let value = Some(AnyValue {
                value: Some(Value::StringValue(value.clone())),
            });
            KeyValue {
                key: key.clone(),
                value,
                ..KeyValue::default()
            }
        });
        let resource = Resource {
            attributes: attributes.collect(),
            ..Resource::default()
        };
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        Self {
            resource: resource.encode_to_vec(),
            scope: scope.encode_to_vec(),
        }
    }

    /// What a record of `len` bytes adds to a request.
    pub fn record_len(len: usize) -> usize {
        part_len(len)
    }

    /// The size of a request whose records add `records` bytes.
    pub fn request_len(&self, records: usize) -> usize {
        part_len(part_len(self.resource.len()) + part_len(part_len(self.scope.len()) + records))
    }

    /// An `ExportLogsServiceRequest` of these encoded log records.
    pub fn request<'a>(&self, records: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
        let scope_logs = part_len(self.scope.len())
            + records
                .clone()
                .map(|record| part_len(record.len()))
                .sum::<usize>();
        let resource_logs = part_len(self.resource.len()) + part_len(scope_logs);
        let mut request = Vec::with_capacity(part_len(resource_logs));
        begin(field::REQUEST_RESOURCE_LOGS, resource_logs, &mut request);
        part(field::RESOURCE_LOGS_RESOURCE, &self.resource, &mut request);
        begin(field::RESOURCE_LOGS_SCOPE_LOGS, scope_logs, &mut request);
        part(field::SCOPE_LOGS_SCOPE, &self.scope, &mut request);
        for record in records {
            part(field::SCOPE_LOGS_LOG_RECORDS, record, &mut request);
        }
        request.into()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};

    use super::*;

    #[test]
    fn a_request_is_what_the_protocol_s_own_types_encode() {
        let attributes = [("service.name".to_owned(), "orgdata-exporter".to_owned())];
        let envelope = Envelope::new(&attributes);
        for count in [0, 1, 3, 300] {
            let records: Vec<LogRecord> = (0..count)
                .map(|n| LogRecord {
                    event_name: "x".repeat(n),
                    time_unix_nano: n as u64,
                    ..LogRecord::default()
                })
                .collect();
            let encoded: Vec<Vec<u8>> = records.iter().map(Message::encode_to_vec).collect();
            let request = envelope.request(encoded.iter().map(Vec::as_slice));
            let expected = ExportLogsServiceRequest {
                resource_logs: vec![ResourceLogs {
                    resource: Some(
                        Resource::decode(envelope.resource.as_slice()).expect("decodes"),
                    ),
                    scope_logs: vec![ScopeLogs {
                        scope: Some(
                            InstrumentationScope::decode(envelope.scope.as_slice())
                                .expect("decodes"),
                        ),
                        log_records: records,
                        ..ScopeLogs::default()
                    }],
                    ..ResourceLogs::default()
                }],
            };
            assert_eq!(request, expected.encode_to_vec());
            let sizes = encoded
                .iter()
                .map(|record| Envelope::record_len(record.len()))
                .sum();
            assert_eq!(envelope.request_len(sizes), request.len());
        }
    }
}
