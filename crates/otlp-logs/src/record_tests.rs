use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;

use super::*;

crate::places! {
    Field {
        Route as "http.route": Root b"route",
        User: Root b"user",
        UserId as "user.id": Root b"userId" | User b"id",
    }
}

fn record(json: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RecordWriter::begin(true, &mut bytes);
    let mut repaired = String::new();
    let found = writer.body::<Field>(json, &Redaction::default(), &mut repaired);
    for (key, place) in Field::ATTRIBUTES {
        writer.attribute(key, found.get(*place));
    }
    writer.end(&Meta {
        time: 1,
        observed: 2,
        event_name: "request",
        trace: Some(([7; 16], [9; 8])),
    });
    bytes
}

#[test]
fn a_request_is_what_the_types_of_the_protocol_write() {
    let resource = [("service.name".to_owned(), "exporter".to_owned())];
    let envelope = Envelope::new(
        resource.into(),
        ["scope", "1", "https://example.com/schema"],
    );
    for count in [0, 1, 3, 300] {
        let json = r#"{"route":"/x","user":{"id":5,"name":null}}"#;
        let records = vec![Bytes::from(record(json)); count];
        let request = envelope.request(records.iter());
        let decoded = ExportLogsServiceRequest::decode(request.clone()).expect("decodes");
        assert_eq!(decoded.encode_to_vec(), request);
        let scope_logs = &decoded.resource_logs[0].scope_logs[0];
        assert_eq!(scope_logs.log_records.len(), count);
        assert_eq!(scope_logs.schema_url, "https://example.com/schema");
        assert_eq!(scope_logs.scope.as_ref().expect("a scope").name, "scope");
        let size: usize = records.iter().map(Bytes::len).sum();
        assert!(request.len() <= envelope.size() + size);
    }
}

#[test]
fn the_table_says_what_becomes_an_attribute() {
    let long = "x".repeat(4097);
    let cut = format!("{}[cut: 1 more bytes]", &long[1..]);
    for line in [
        r#"{"userId":1,"user":{"id":2},"route":"/x"} => http.route="/x" user.id=1"#,
        r#"{"userId":null,"user":{"id":2.5}} => user.id=2.5"#,
        r#"{"user":[{"id":2}],"deep":{"route":"/x"},"route":["/x"]} => "#,
        r#"{"userId":1e999} => user.id="1e999""#,
        &format!(r#"{{"route":"{long}"}} => http.route="{cut}""#),
    ] {
        let (object, expected) = line.split_once(" => ").expect(line);
        let logs = ScopeLogs::decode(record(object).as_slice()).expect("decodes");
        let attributes = logs.log_records[0].attributes.iter();
        let shown = attributes.map(|it| format!("{}={}", it.key, json(it.value.clone())));
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
        assert_eq!(decode(&record(object)).0, "request");
    }
}
