//! The scan through the real client and a real socket.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use orgdata_api::{Client, KeySource, Settings};
use orgdata_exporter::health::Health;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::tickets;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::support::{bug, settings};
use crate::support::fast::fast;

/// What the stub does, besides serving 95 tickets.
#[derive(Default)]
struct Stub {
    requests: AtomicUsize,
    /// Answers 503 to the third request.
    hiccup: bool,
    /// Answers 403 to all.
    forbids: bool,
    /// Answers 429, and not when to come back, to more than three requests in three seconds.
    quota: Option<Mutex<Vec<Instant>>>,
}

#[derive(serde::Deserialize)]
struct Parameters {
    limit: u64,
    offset: u64,
}

async fn list(
    State(stub): State<Arc<Stub>>,
    headers: HeaderMap,
    Query(parameters): Query<Parameters>,
) -> Response {
    let number = stub.requests.fetch_add(1, Ordering::Relaxed);
    if headers.get("x-api-key").is_none_or(|key| key != "secret") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if stub.forbids {
        return (StatusCode::FORBIDDEN, r#"{"message":"no such scope"}"#).into_response();
    }
    if let Some(quota) = &stub.quota {
        let mut let_through = quota.lock().unwrap();
        let_through.retain(|at| at.elapsed() < Duration::from_secs(3));
        if let_through.len() >= 3 {
            return StatusCode::TOO_MANY_REQUESTS.into_response();
        }
        let_through.push(Instant::now());
    }
    if stub.hiccup && number == 2 {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let end = (parameters.offset + parameters.limit).min(95);
    let items: Vec<String> = (parameters.offset..end)
        .map(|id| bug(id).replace('}', r#","newField":1}"#))
        .collect();
    let body = format!(
        r#"{{"items":[{}],"limit":{},"offset":{},"totalCount":95}}"#,
        items.join(","),
        parameters.limit,
        parameters.offset
    );
    ([("content-type", "application/json")], body).into_response()
}

async fn client(stub: Arc<Stub>, metrics: &Metrics) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/v1/tickets", get(list))
        .with_state(stub);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let settings = Settings {
        key: KeySource::Value("secret".into()),
        max_requests_per_second: 1000.0,
        ..crate::support::settings::api(&format!("http://{address}"))
    };
    Client::new(settings, metrics.api.clone()).unwrap()
}

#[tokio::test]
async fn pages_over_a_socket_make_one_snapshot() {
    let stub = Arc::new(Stub {
        hiccup: true,
        ..Stub::default()
    });
    let metrics = Metrics::new(Duration::ZERO);
    let client = client(stub.clone(), &metrics).await;
    let mut scanner = tickets::Scanner::new(settings(10), Counter::default());
    let snapshot = scanner.round(&client).await.unwrap();
    assert_eq!((snapshot.tickets, snapshot.doubt), (95, None));
    // Eleven pages, one of them requested twice.
    assert_eq!(stub.requests.load(Ordering::Relaxed), 12);
    let text = Format::OpenMetrics.encode(metrics.registry(), 0).unwrap();
    assert!(
        text.contains("orgdata_api_unknown_fields_total 95"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_more_pages_than_a_quota_allows_comes_to_its_end() {
    let stub = Arc::new(Stub {
        quota: Some(Mutex::default()),
        ..Stub::default()
    });
    let client = client(stub.clone(), &Metrics::new(Duration::ZERO)).await;
    let mut scanner = tickets::Scanner::new(settings(10), Counter::default());
    let snapshot = fast(scanner.round(&client)).await.unwrap();
    assert_eq!((snapshot.tickets, snapshot.doubt), (95, None));
    // Eleven pages, and not many refusals.
    let requests = stub.requests.load(Ordering::Relaxed);
    assert!(requests < 40, "{requests}");
}

#[tokio::test]
async fn a_key_without_the_scope_is_a_state_and_not_a_crash() {
    let stub = Arc::new(Stub {
        forbids: true,
        ..Stub::default()
    });
    let metrics = Metrics::new(Duration::ZERO);
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(tickets::run(
        client(stub, &metrics).await,
        settings(10),
        metrics.tickets.clone(),
        metrics.loops.clone(),
        Health::default(),
        shutdown.clone(),
    ));
    let state = loop {
        let state = metrics.loops.state(Loop::Tickets);
        if state.up.is_some() {
            break state;
        }
        tokio::task::yield_now().await;
    };
    shutdown.cancel();
    task.await.unwrap();
    assert_eq!(state.up, Some(false));
    let message = state.last_failure.unwrap().message;
    for part in ["HTTP 403", "no such scope", "ticket series are absent"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(metrics.tickets.series().is_none());
}
