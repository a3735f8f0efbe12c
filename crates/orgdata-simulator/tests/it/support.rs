//! A client, a simulator, and its pages.

use orgdata_simulator::{Config, Running, Simulator};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;

/// The key that a simulator accepts by default.
pub(crate) const KEY: &str = "demo-key";

pub(crate) fn client() -> Client {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().tls_certs_only([]);
    client.build().unwrap()
}

/// Starts a quiet simulator with some history.
pub(crate) async fn with_history(history: u64, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::quiet();
    config.history = history;
    change(&mut config);
    Simulator::spawn(config).await.unwrap()
}

/// Sends a request, with a key unless it is empty.
pub(crate) async fn request(sim: &Running, path: &str, key: &str) -> Response {
    let request = client().get(format!("{}{path}", sim.base_url()));
    let request = match key {
        "" => request,
        key => request.header("x-api-key", key),
    };
    request.send().await.unwrap()
}

pub(crate) async fn get(sim: &Running, path: &str) -> (StatusCode, Value) {
    get_with(sim, path, KEY).await
}

/// Requests JSON with a key.
pub(crate) async fn get_with(sim: &Running, path: &str, key: &str) -> (StatusCode, Value) {
    let response = request(sim, path, key).await;
    let status = response.status();
    let kind = response.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("application/json"), "{kind}");
    let body = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

pub(crate) async fn audit(sim: &Running, query: &str) -> Value {
    let (status, page) = get(sim, &format!("/v1/audit-logs?{query}")).await;
    assert_eq!(status, 200, "{page}");
    page
}

pub(crate) fn items(page: &Value) -> &[Value] {
    page["items"].as_array().unwrap()
}

pub(crate) fn ids(page: &Value) -> Vec<&str> {
    let items = items(page).iter();
    items.map(|item| text(item, "id")).collect()
}

/// Returns `hasPrevious` and `hasMore`.
pub(crate) fn flags(page: &Value) -> (bool, bool) {
    let flag = |name: &str| page[name].as_bool().unwrap();
    (flag("hasPrevious"), flag("hasMore"))
}

pub(crate) fn text<'a>(page: &'a Value, field: &str) -> &'a str {
    page[field].as_str().unwrap()
}
