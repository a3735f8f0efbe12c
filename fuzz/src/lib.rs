//! What has to hold for any bytes from outside: functions that panic if a promise is broken. `cargo fuzz` calls them, and `tests/it/corpus.rs` plays
//! the corpus and seeded changes of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use orgdata_api::{
    self as api, AuditPage, BaseUrl, Client, Endpoint, Filters, KeySource, TicketPage,
};
use otlp_logs::Verdict;
use otlp_logs::fuzz::{HttpAnswer, of_answer};
use prost::Message as _;
use serde_json::value::RawValue;
use tonic::Status;

use orgdata_exporter::audit::{Entry, Redact as _};
use orgdata_exporter::ledger::{Stored, compress, decompress};
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::negotiate;
use orgdata_exporter::metrics::{ApiMetrics, Metrics};
use orgdata_exporter::records::{Redaction, log_record as log_record_of};
use orgdata_exporter::tickets::{self, Aggregate, MAX_LABEL_CHARS, MAX_VALUES};

/// A check of any bytes.
pub type Target = fn(&[u8]);

/// Each target with its name in `fuzz/`.
pub const TARGETS: [(&str, Target); 6] = [
    ("audit_page", audit_page),
    ("ticket_page", ticket_page),
    ("error_body", error_body),
    ("collector_answer", collector_answer),
    ("state_file_block", state_file_block),
    ("accept_header", accept_header),
];

/// The maximum length of a message with the words of a peer, in characters.
const MAX_MESSAGE: usize = 400;

/// The maximum length of a verdict, which has every known phrase at most.
const MAX_SHOWN: usize = 1000;

/// The maximum size of a log record, which fits a request of 3 MiB.
const MAX_RECORD: usize = 3_000_000;

/// How much of the body of an error is read as JSON, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// The maximum delay that a peer can ask for.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// lz4 compresses no better than this.
const MAX_RATIO: usize = 255;

/// The members of an entry that are users.
const USERS: [&str; 3] = ["actorUser", "targetUser", "modifiedTargetUser"];

/// A page of audit logs. Its items have one identity each and become log records, without users if these are off.
pub fn audit_page(data: &[u8]) {
    let body = String::from_utf8_lossy(data).into_owned();
    // What is not JSON is delivered too.
    assert_eq!(log_record(&body), body);
    let Ok(page) = AuditPage::parse(body, None) else {
        return;
    };
    let redaction = Redaction::new(false, &["email".to_owned()]).expect("users are left out");
    let name = secret(data);
    for item in page.items() {
        let entry = Entry::read(item);
        drop((entry.problem(), entry.activity_type(), entry.actor()));
        assert_line(&entry.shown_id(), 64);
        assert_eq!(log_record(item), item);
        let redacted = log_record(&redaction.redact(item));
        assert!(is_without_users(&redacted), "{redacted}");
        assert_eq!(redaction.redact(&redacted), redacted, "once is enough");
        let Some(members) = item.strip_prefix('{') else {
            continue;
        };
        let comma = if members.trim_start() == "}" { "" } else { "," };
        for user in USERS {
            let named = format!(r#"{{"{user}":{{"firstName":"{name}","id":1}}{comma}{members}"#);
            let shown = redaction.redact(&named);
            assert!(!shown.contains(&name), "{shown}");
        }
    }
}

/// Returns the body of the record of a stored entry.
fn log_record(text: &str) -> String {
    let stored = Stored {
        entry: text.into(),
        ..Stored::default()
    };
    let record = log_record_of(Stored::read(stored.line().as_bytes()));
    let bytes = record.encode_to_vec();
    assert!(bytes.len() <= MAX_RECORD, "{} bytes", bytes.len());
    let read = LogRecord::decode(&*bytes).expect("a collector can read the record");
    match read.body.and_then(|body| body.value) {
        Some(Value::StringValue(body)) => body,
        other => panic!("{other:?}"),
    }
}

/// Reports whether the text of an entry is JSON in which every user is null.
fn is_without_users(text: &str) -> bool {
    let entry: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    USERS
        .iter()
        .all(|user| entry.get(*user).is_none_or(|user| user.get() == "null"))
}

/// A page of tickets. Each is counted once, and labels are short and few.
pub fn ticket_page(data: &[u8]) {
    let Ok(page) = TicketPage::parse(String::from_utf8_lossy(data).into_owned(), None) else {
        return;
    };
    let settings = tickets::ScanSettings {
        scan_interval: Duration::from_secs(300),
        max_age: Duration::from_secs(3600),
        open_states: vec!["OPEN".to_owned()],
        priorities: vec!["BLOCKER".to_owned(), "HIGH".to_owned()],
        page_size: 100,
    };
    let expected = page.total_count.unwrap_or(0).min(1000);
    let mut aggregate = Aggregate::new(&settings, Timestamp::UNIX_EPOCH, expected);
    for item in page.items() {
        let key = aggregate.add(item);
        let tickets = aggregate.tickets();
        assert_eq!((aggregate.add(item), aggregate.tickets()), (key, tickets));
    }
    let snapshot = aggregate.finish(Duration::ZERO, true);
    assert!(snapshot.tickets <= page.len() as u64 && snapshot.malformed <= snapshot.tickets);
    let groups = || snapshot.by_state.iter();
    let all: u64 = groups().map(|(_, group)| group.tickets).sum();
    assert_eq!(all, snapshot.tickets);
    let open = groups().filter(|([state, _], _)| &**state == "OPEN");
    let open: u64 = open.map(|(_, group)| group.tickets).sum();
    assert_eq!(snapshot.open_total(), open);
    let states: std::collections::BTreeSet<_> = groups().map(|([state, _], _)| state).collect();
    assert!(states.len() <= MAX_VALUES + 3, "{states:?}");
    for label in groups().flat_map(|(labels, _)| labels) {
        assert_line(label, MAX_LABEL_CHARS);
    }
    for (labels, group) in groups().chain(&snapshot.open) {
        assert!(group.deal_amount().is_finite(), "{labels:?}");
    }
    for times in snapshot.times.values() {
        let ages = times.older_than;
        assert!(ages.is_sorted_by(|one, older| one >= older), "{ages:?}");
    }
}

/// A response of the API: its head as in HTTP, an empty line, and the body. An error is one short line without the key, and
/// depends on the beginning of the body alone.
pub fn error_body(data: &[u8]) {
    static CLIENT: LazyLock<Client> = LazyLock::new(|| {
        // It is set already if this is not the only user of TLS in the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = api::ClientSettings {
            base_url: BaseUrl::parse("http://localhost").expect("it is an address"),
            key: KeySource::Value("no key".into()),
            timeout: Duration::from_secs(1),
            max_requests_per_second: 1.0,
            ca_file: None,
            read_file: exporter_web::read_file,
            filters: Filters::default(),
        };
        let metrics: ApiMetrics = Metrics::new(Duration::ZERO).api;
        Client::new(settings, metrics).expect("there are no files to read")
    });
    let key = secret(data);
    let header = HeaderValue::from_str(&key).expect("it is visible ASCII");
    let message = |answer: http::Response<Vec<u8>>| {
        let error = CLIENT
            .read_response(Endpoint::AuditLogs, answer, None, &header, AuditPage::parse)
            .err()?;
        assert_line(&error.to_string(), MAX_MESSAGE);
        assert_hidden(&error.to_string(), &key);
        assert!(error.retry_after().is_none_or(|delay| delay <= MAX_DELAY));
        Some(error.to_string())
    };
    message(answer(data, Some(&key)));
    let plain = answer(data, None);
    let shown = message(plain.clone());
    // A body with the status of an error is not parsed if it is long.
    if plain.body().len() > MAX_ERROR_BODY && !plain.status().is_success() {
        let mut longer = plain;
        longer.body_mut().extend([b'x'; 100_000]);
        assert_eq!(message(longer), shown);
    }
}

/// An answer of a collector, over gRPC if it has a `grpc-status`. Nothing that it says itself is shown.
pub fn collector_answer(data: &[u8]) {
    let key = secret(data);
    let (plain, mut text) = (answer(data, None), answer(data, Some(&key)));
    let kind = text.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"application/json")) {
        let kind = HeaderValue::from_static("text/plain");
        text.headers_mut().insert(CONTENT_TYPE, kind);
    }
    let (mut protobuf, words) = (text.clone(), String::from_utf8_lossy(text.body()).into());
    let kind = HeaderValue::from_static("application/x-protobuf");
    protobuf.headers_mut().insert(CONTENT_TYPE, kind);
    *protobuf.body_mut() = protobuf_answer(text.status(), words);
    for answer in [plain, text, protobuf] {
        let (parts, body) = answer.into_parts();
        let verdict = match Status::from_header_map(&parts.headers) {
            None => HttpAnswer {
                status: parts.status,
                headers: parts.headers,
                body,
            }
            .verdict(),
            Some(status) if status.code() == tonic::Code::Ok => {
                let Ok(answer) = ExportLogsServiceResponse::decode(&*body) else {
                    continue;
                };
                of_answer(Ok(answer))
            }
            Some(status) => {
                let status = Status::with_details(status.code(), status.message(), body.into());
                of_answer(Err(status))
            }
        };
        let shown = format!("{verdict:?}");
        assert_line(&shown, MAX_SHOWN);
        assert_hidden(&shown, &key);
        match verdict {
            Verdict::Accepted | Verdict::Warned { .. } => {}
            Verdict::PartlyRejected { rejected, .. } => assert!(rejected > 0),
            Verdict::Rejected(rejection) => {
                assert!(rejection.retry_after.is_none_or(|delay| delay <= MAX_DELAY));
            }
        }
    }
}

/// Returns an answer with these words: some records were rejected, or, unless the status is a success, all.
fn protobuf_answer(status: StatusCode, words: String) -> Vec<u8> {
    if !status.is_success() {
        let rejection = tonic_types::Status {
            code: 3,
            message: words,
            ..tonic_types::Status::default()
        };
        return rejection.encode_to_vec();
    }
    let partial = ExportLogsPartialSuccess {
        rejected_log_records: 1,
        error_message: words,
    };
    let partial_success = Some(partial);
    ExportLogsServiceResponse { partial_success }.encode_to_vec()
}

/// A block of the state file, compressed or not. It takes no more memory than it can hold, and its records can be read.
pub fn state_file_block(data: &[u8]) {
    let mut blocks = vec![data.to_vec()];
    if let Ok(bytes) = decompress(data) {
        assert!(bytes.len() <= data.len() * MAX_RATIO, "{}", bytes.len());
        blocks.push(bytes);
    }
    let back = decompress(&compress(data)).ok();
    assert_eq!(back.as_deref(), Some(data));
    for block in blocks {
        for line in block.split(|byte| *byte == b'\n') {
            let stored = Stored::read(line);
            assert_eq!(Stored::read(stored.line().as_bytes()), stored);
            log_record_of(stored);
        }
    }
}

/// The values of `Accept`, a line each.
pub fn accept_header(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(100) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(ACCEPT, value);
        }
    }
    let text = String::from_utf8_lossy(data).to_ascii_lowercase();
    let has = |names: &[&str]| names.iter().any(|name| text.contains(name));
    let choices = |of: &HeaderMap| (negotiate::format(of), negotiate::is_scraper(of));
    let (format, is_scraper) = choices(&headers);
    assert!(format == Format::Text || has(&["application/openmetrics-text"]));
    assert!(!is_scraper || has(&["openmetrics-text", "google.protobuf", "text/plain"]));
    for invalid in ["x/y", ";;,=", "text/plain;q=2", "gzip;q=x"] {
        headers.append(ACCEPT, HeaderValue::from_static(invalid));
        assert_eq!(choices(&headers), (format, is_scraper), "{invalid}");
    }
    let openmetrics = HeaderValue::from_static("application/openmetrics-text");
    headers.append(ACCEPT, openmetrics);
    assert_eq!(negotiate::format(&headers), Format::OpenMetrics);
}

/// Returns a key that no input contains, because it depends on all of the input.
fn secret(data: &[u8]) -> String {
    let [one, other] = [0, 1].map(|salt| hash(salt, data));
    format!("sk_live/{one:016x}+{other:016x}")
}

fn hash(salt: u8, data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, data).hash(&mut hasher);
    hasher.finish()
}

/// Parses a response: the status, header fields, an empty line, and the body. `key` is put into the body, escaped in some
/// way, and into the fields that are shown.
fn answer(data: &[u8], key: Option<&str>) -> http::Response<Vec<u8>> {
    let end = data.windows(2).position(|two| two == b"\n\n");
    let (head, mut body) = match end {
        Some(end) => (&data[..end], data[end + 2..].to_vec()),
        None => (data, Vec::new()),
    };
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status: Option<StatusCode> = lines.next().and_then(|line| line.parse().ok());
    let mut headers = HeaderMap::new();
    for (name, value) in lines.take(20).filter_map(|line| line.split_once(':')) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value.trim().try_into()) {
            headers.insert::<HeaderName>(name, value);
        }
    }
    if let Some(key) = key {
        let chance = hash(2, data) as usize;
        let at = chance % (body.len() + 1);
        // After a backslash it would be another text.
        let escaped_key = format!(" {}", escaped(key, chance / 7));
        body.splice(at..at, escaped_key.into_bytes());
        // A backslash in an address is a slash.
        let names = ["content-type", "grpc-message", "location"];
        let ways = [chance, chance, 0].into_iter();
        for (name, way) in names.into_iter().zip(ways) {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            let value = value.map(|value| format!("{value};{}", escaped(key, way)));
            if let Some(value) = value.and_then(|value| value.try_into().ok()) {
                headers.insert(name, value);
            }
        }
    }
    let mut answer = http::Response::new(body);
    *answer.status_mut() = status.unwrap_or_default();
    *answer.headers_mut() = headers;
    answer
}

/// Writes a key in one of the ways in which services repeat it.
fn escaped(key: &str, way: usize) -> String {
    let each = |form: fn(u8) -> String| key.bytes().map(form).collect();
    match way % 6 {
        0 => key.to_owned(),
        1 => key.replace('/', r"\/"),
        2 => each(|byte| format!(r"\u{byte:04x}")),
        3 => each(|byte| format!("%{byte:02X}")),
        4 => each(|byte| format!("%25{byte:02x}")),
        _ => each(|byte| format!("&#{byte};")),
    }
}

/// Asserts that a text is one line of at most `max` characters.
fn assert_line(text: &str, max: usize) {
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(text.chars().count() <= max, "{text:?}");
}

/// Asserts that a text has no part of a secret that is long enough to be one by accident.
fn assert_hidden(text: &str, secret: &str) {
    let random = secret.strip_prefix("sk_live/").unwrap_or(secret);
    let mut parts = random.as_bytes().windows(12);
    let shown = parts.find(|part| text.as_bytes().windows(12).any(|shown| shown == *part));
    assert!(shown.is_none(), "{secret} in {text:?}");
}
