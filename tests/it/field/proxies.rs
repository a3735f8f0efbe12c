//! The proxy of the environment: a tunnel that goes silent is left, and a proxy that cannot be used is refused at the start.

use super::peers::{Event, Relay, Server, presenting};
use crate::support::binary::{Scrape, exporter};
use crate::support::files::tls;

/// The name in the stranger's certificate; only the proxy has an address for it.
const URL: &str = "https://stranger.example";

#[tokio::test]
async fn a_tunnel_that_goes_silent_costs_each_loop_one_time_out() {
    let server = Server::good("api").await;
    let api = Relay::new(server.address, Some(presenting("stranger", None))).await;
    let proxy = Relay::proxy(api.address).await;
    let exporter = exporter(URL)
        .arg(&format!("--api.ca-file={}", tls("stranger.pem")))
        .arg("--api.timeout=1s")
        .env("HTTPS_PROXY", &proxy.address.to_string())
        .start();
    for series in ["orgdata_up{loop=\"audit\"}", "orgdata_up{loop=\"tickets\"}"] {
        exporter.until_value(series, 1.0).await;
    }
    proxy.event.send_replace(Event::Silence);
    let late = |scrape: &Scrape| -> f64 {
        let failures = scrape.series("orgdata_api_request_failures_total");
        let late = failures.filter(|(labels, _)| labels.iter().any(|label| label == "timeout"));
        late.map(|(_, count)| count).sum()
    };
    let requests = |scrape: &Scrape| scrape.sum("orgdata_api_requests_total");
    let is_late = |scrape: &Scrape| late(scrape) > 0.0;
    let before = requests(&exporter.until("a time-out", is_late).await);
    let goes_on = |scrape: &Scrape| requests(scrape) > before + 20.0;
    let after = exporter.until("it goes on", goes_on).await;
    assert!(late(&after) <= 2.0, "{}", late(&after));
}

/// The HTTP client would pass over it, and connect directly.
#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_refused_at_the_start() {
    let launch = exporter(URL).env("HTTPS_PROXY", "socks5://user:hush@proxy:1080");
    let line = launch.refused(2, "HTTPS_PROXY | socks5 | http://HOST:PORT");
    let line = line.await;
    assert!(!line.contains("hush"), "{line}");
    let launch = exporter("http://127.0.0.1:1")
        .otlp("http/protobuf", "http://collector.example:4318")
        .env("HTTP_PROXY", "socks5://proxy:1080");
    launch.refused(2, "HTTP_PROXY | socks5").await;
}
