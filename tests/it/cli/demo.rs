//! The demo: one command, no configuration, and everything is seen to work; twice on one machine too.

use crate::support::binary::{Exporter, client, launch, until};

/// The address in the line of the demo's introduction that says this.
async fn url(demo: &Exporter, what: &str) -> String {
    let line = demo.stdout().until(what, |line| line.contains(what)).await;
    line.split_whitespace()
        .next()
        .expect("an address")
        .to_owned()
}

async fn page(url: &str) -> String {
    let response = client().get(url).send().await.expect("it answers");
    assert_eq!(response.status(), 200, "{url}");
    response.text().await.expect("whole")
}

#[tokio::test]
async fn everything_is_seen_to_work_also_twice_and_also_behind_a_proxy() {
    // A proxy that is not there: what is on this machine is never asked for through it.
    let one = launch(&["demo"])
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1")
        .start();
    let two = launch(&["demo"]).start();
    let mut pages = Vec::new();
    for mut demo in [one, two] {
        let landing = url(&demo, "what the exporter is doing").await;
        let metrics = url(&demo, "what Prometheus scrapes").await;
        let simulator = url(&demo, "the simulator").await;
        until("events and tickets in the metrics", async || {
            let text = page(&metrics).await;
            let seen = |family: &str| {
                text.lines()
                    .any(|line| line.starts_with(family) && !line.ends_with(" 0"))
            };
            (seen("orgdata_audit_events_total{") && seen("orgdata_tickets{")).then_some(())
        })
        .await;
        demo.stdout()
            .until("a log record", |line| {
                line.contains("orgdata.audit.") && line.contains(" id=")
            })
            .await;
        assert!(page(&landing).await.contains("</html>"));
        assert!(page(&simulator).await.contains("/control/"));
        assert_eq!(demo.stdout().text().matches("http://").count(), 3);
        assert!(demo.runs());
        pages.push((landing, demo));
    }
    assert_ne!(pages[0].0, pages[1].0);
    for (_, mut demo) in pages {
        assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
    }
}

#[tokio::test]
async fn a_state_file_can_be_kept_also_when_the_usual_port_is_taken() {
    // Taken by this test, or by somebody else already.
    let _taken = std::net::TcpListener::bind("127.0.0.1:10917");
    let launch = launch(&["demo", "--state.path=demo.db"]);
    let file = launch.dir().join("demo.db");
    let mut demo = launch.start();
    let metrics = url(&demo, "what Prometheus scrapes").await;
    assert!(!metrics.contains(":10917/") && file.exists(), "{metrics}");
    assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
}

#[tokio::test]
async fn the_flags_of_the_exporter_work_in_the_demo_too() {
    let demo = launch(&[
        "demo",
        "--web.listen-address=127.0.0.1:0",
        "--web.telemetry-path=/m",
    ])
    .env("ORGDATA_METRICS_ACTOR_LABEL", "none")
    .start();
    let metrics = url(&demo, "what Prometheus scrapes").await;
    assert!(metrics.ends_with("/m"), "{metrics}");
    until("events without actors", async || {
        page(&metrics)
            .await
            .contains("orgdata_audit_events_total{")
            .then_some(())
    })
    .await;
    assert!(!page(&metrics).await.contains("actor="));
}
