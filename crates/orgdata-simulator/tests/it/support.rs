//! A client, a simulator, and its pages.

use std::sync::LazyLock;

use orgdata_simulator::{Config, Running, Simulator};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;

/// Returns the client of all tests. It keeps no connection, because each test has its own runtime.
pub(crate) fn client() -> &'static Client {
    static CLIENT: LazyLock<Client> = LazyLock::new(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .redirect(Policy::none())
            .build()
            .unwrap()
    });
    &CLIENT
}

/// Starts a quiet simulator with some history.
pub(crate) async fn with_history(history: u64, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config {
        history,
        ..Config::quiet()
    };
    change(&mut config);
    Simulator::spawn(config).await.unwrap()
}

pub(crate) async fn get(sim: &Running, path: &str) -> (StatusCode, Value) {
    let response = raw(sim, path).await.unwrap();
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

pub(crate) fn ids(page: &Value) -> Vec<String> {
    let items = items(page).iter();
    items.map(|item| text(item, "id").to_owned()).collect()
}

/// Returns `hasPrevious` and `hasMore`.
pub(crate) fn flags(page: &Value) -> (bool, bool) {
    let flag = |name: &str| page[name].as_bool().unwrap();
    (flag("hasPrevious"), flag("hasMore"))
}

/// Returns the ids of a page.
pub(crate) async fn listed(sim: &Running, query: &str) -> Vec<String> {
    ids(&audit(sim, query).await)
}

pub(crate) fn text<'a>(page: &'a Value, field: &str) -> &'a str {
    page[field].as_str().unwrap()
}

/// Returns every id from the newest to the oldest, page by page.
pub(crate) async fn all_ids(sim: &Running, query: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut page = audit(sim, query).await;
    while !items(&page).is_empty() {
        all.extend(ids(&page));
        let before = text(&page, "endCursor").to_owned();
        page = audit(sim, &format!("{query}&before={before}")).await;
    }
    all
}

/// Sends one request.
pub(crate) async fn raw(sim: &Running, path: &str) -> reqwest::Result<reqwest::Response> {
    client()
        .get(format!("{}{path}", sim.base_url()))
        .header("X-API-Key", "demo-key")
        .send()
        .await
}
