//! The service from outside: away, behind a path, behind a proxy.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use orgdata_exporter::simulator::{Config, Simulator};

use crate::support::binary::{client, exporter, until};
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS, Peer, answer, json};

const UP: &str = "orgdata_up{loop=\"audit\"}";

/// A gateway that serves another base address below `/gateway/orgdata`, and nothing else.
async fn gateway(base_url: String) -> String {
    let forward = move |request: Request| {
        let base_url = base_url.clone();
        async move {
            let path = request
                .uri()
                .path_and_query()
                .map_or("/", |path| path.as_str());
            let sent = client()
                .get(format!("{base_url}{path}"))
                .headers(request.headers().clone())
                .send()
                .await
                .expect("it answers");
            let status = sent.status();
            let mut response = Response::new(Body::from(sent.bytes().await.expect("whole")));
            *response.status_mut() = status;
            response
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let router = Router::new().nest("/gateway/orgdata", Router::new().fallback(forward));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/gateway/orgdata")
}

/// A proxy that answers for every service with empty pages.
async fn proxy() -> Peer {
    Peer::start(|seen, _| match seen.target() {
        target if target.contains("/v1/tickets") => json("200 OK", NO_TICKETS),
        target if target.contains("/v1/audit-logs") => json("200 OK", NO_ENTRIES),
        _ => answer("404 Not Found", &[], ""),
    })
    .await
}

#[tokio::test]
async fn a_base_address_with_a_path_works_with_and_without_a_slash_at_the_end() {
    let sim = Simulator::spawn(Config {
        tickets: 3,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let url = gateway(sim.base_url()).await;
    for base_url in [url.clone(), format!("{url}/")] {
        let exporter = exporter(&base_url).start();
        exporter.until_value(UP, 1.0).await;
        exporter
            .until_value("orgdata_up{loop=\"tickets\"}", 1.0)
            .await;
        assert_eq!(exporter.sum("orgdata_tickets").await, 3.0);
    }
}

#[tokio::test]
async fn a_service_that_is_away_is_waited_for() {
    let sim = Simulator::spawn(Config {
        tickets: 3,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let (address, base_url, world) = (
        sim.address(),
        sim.base_url(),
        std::sync::Arc::clone(sim.simulator()),
    );
    sim.stop().await;
    let mut exporter = exporter(&base_url).start();
    until("a failure", async || {
        let failures = exporter
            .value("orgdata_api_request_failures_total{endpoint=\"audit-logs\",reason=\"connect\"}")
            .await;
        (failures > Some(0.0)).then_some(())
    })
    .await;
    assert_eq!(
        (
            exporter.get("/-/healthy").await.0,
            exporter.get("/-/ready").await.0
        ),
        (200, 200)
    );
    assert_eq!(exporter.value(UP).await, Some(0.0));
    exporter
        .stderr()
        .until("what it cannot do, and what it does next", |line| {
            line.contains("level=warn")
                && line.contains("cannot connect")
                && line.contains("retry_in")
        })
        .await;

    let _sim = world.run_on(address).await.expect("the port is still free");
    exporter.until_value(UP, 1.0).await;
    exporter
        .until_value("orgdata_up{loop=\"tickets\"}", 1.0)
        .await;
    assert_eq!(exporter.sum("orgdata_tickets").await, 3.0);
    assert_eq!(exporter.stop().await, Some(0));
}

#[tokio::test]
async fn a_proxy_from_the_environment_is_used_unless_the_host_is_excepted() {
    let (sim, proxy) = (
        Simulator::spawn(Config::quiet())
            .await
            .expect("a simulator"),
        proxy().await,
    );
    // This address is this machine, and the only such one that does not say so.
    let base_url = format!("http://0.0.0.0:{}", sim.address().port());
    let launch = || {
        exporter(&base_url)
            .arg("--api.allow-plain-http")
            .env("HTTP_PROXY", &proxy.url())
    };

    let through = launch().start();
    through.until_value(UP, 1.0).await;
    assert_eq!(sim.requests().audit, 0);
    let target = proxy.seen()[0].target().to_owned();
    assert!(target.starts_with(&format!("{base_url}/v1/")), "{target}");
    drop(through);

    let unused = self::proxy().await;
    let past = launch()
        .env("HTTP_PROXY", &unused.url())
        .env("NO_PROXY", "example.com,0.0.0.0")
        .start();
    past.until_value(UP, 1.0).await;
    assert!(sim.requests().audit > 0);
    assert_eq!(unused.count(), 0);
}

#[tokio::test]
async fn a_service_on_this_machine_is_never_asked_through_a_proxy() {
    // Plain http is allowed to loopback because nobody else sees it; a proxy would.
    let (sim, proxy) = (
        Simulator::spawn(Config::quiet())
            .await
            .expect("a simulator"),
        proxy().await,
    );
    let port = sim.address().port();
    for base_url in [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
    ] {
        let launch = exporter(&base_url)
            .env("HTTP_PROXY", &proxy.url())
            .env("ALL_PROXY", &proxy.url());
        launch.start().until_value(UP, 1.0).await;
    }
    assert_eq!(proxy.count(), 0);
    assert!(sim.requests().audit > 0);
}
