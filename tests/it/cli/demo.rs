//! The demo: one command, no configuration, and everything works; also twice on one machine.

use crate::support::binary::{Exporter, Launch, client, launch, until};
use crate::support::collector_peer::Peer;
use crate::support::files::file;

/// The URL in the line of the introduction that contains this.
async fn url(demo: &Exporter, what: &str) -> String {
    let line = demo.stdout().until(what, |line| line.contains(what)).await;
    line.split_whitespace().next().unwrap().to_owned()
}

async fn page(url: &str) -> String {
    let response = client().get(url).send().await.unwrap();
    assert_eq!(response.status(), 200, "{url}");
    response.text().await.unwrap()
}

#[tokio::test]
async fn two_demos_work_on_one_machine_and_behind_a_proxy() {
    // Nothing on this machine is requested through a proxy, not even one that is gone.
    let one = launch(&["demo"])
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1")
        .start();
    let two = launch(&["demo"]).start();
    let mut landings = Vec::new();
    for demo in [&one, &two] {
        let landing = url(demo, "what the exporter is doing").await;
        let metrics = url(demo, "what Prometheus scrapes").await;
        let simulator = url(demo, "the simulator").await;
        until("events and tickets in the metrics", async || {
            let text = page(&metrics).await;
            let seen = |family: &str| {
                let mut lines = text.lines().filter(|line| line.starts_with(family));
                lines.any(|line| !line.ends_with(" 0"))
            };
            (seen("orgdata_audit_events_total{") && seen("orgdata_tickets{")).then_some(())
        })
        .await;
        let is_record = |line: &str| line.contains("orgdata.audit.") && line.contains(" id=");
        demo.stdout().until("a log record", is_record).await;
        assert!(page(&landing).await.contains("</html>"));
        assert!(page(&simulator).await.contains("/control/"));
        landings.push(landing);
    }
    assert_ne!(landings[0], landings[1]);
    for mut demo in [one, two] {
        assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
    }
}

#[tokio::test]
async fn the_demo_that_cargo_runs_warns_of_nothing() {
    // Cargo sets the same variables for a test as for `cargo run`: its own, and those that build.rs emits.
    let own = std::env::vars().filter(|(name, _)| name.starts_with("CARGO"));
    let build = file("build.rs");
    let emitted = build.split("rustc-env=").skip(1).map(|rest| {
        let name = rest.split('=').next().unwrap();
        let value = std::env::var(name).expect(name);
        (name.to_owned(), value)
    });
    let variables: Vec<_> = own.chain(emitted).collect();
    let has = |name: &str| variables.iter().any(|(known, _)| known == name);
    assert!(has("CARGO_PKG_VERSION") && has("BUILD_REVISION"));
    let launch = launch(&["demo"]);
    let set = |launch: Launch, (name, value): &(String, String)| launch.env(name, value);
    let mut demo = variables.iter().fold(launch, set).start();
    let is_record = |line: &str| line.contains("orgdata.audit.");
    demo.stdout().until("a log record", is_record).await;
    assert_eq!(demo.stop().await, Some(0));
    let log = demo.stderr().text();
    assert!(log.contains("level=info msg=listening"), "{log}");
    assert!(
        log.lines().all(|line| line.contains(" level=info ")),
        "{log}"
    );
}

#[tokio::test]
async fn it_takes_the_exporter_s_flags_and_says_that_the_usual_port_is_in_use() {
    // In use by this test, or by another process.
    let _taken = std::net::TcpListener::bind("127.0.0.1:10917");
    let launch = launch(&["demo", "--state.path=demo.db", "--web.telemetry-path=/m"])
        .env("ORGDATA_METRICS_ACTOR_LABEL", "none");
    let file = launch.dir().join("demo.db");
    let mut demo = launch.start();
    let note = |line: &str| line.contains("(port 10917 is in use)");
    demo.stdout().until("the note", note).await;
    let metrics = url(&demo, "what Prometheus scrapes").await;
    assert!(metrics.ends_with("/m"), "{metrics}");
    assert!(!metrics.contains(":10917/"), "{metrics}");
    until("events without actors", async || {
        let text = page(&metrics).await;
        assert!(!text.contains("actor="));
        text.contains("orgdata_audit_events_total{").then_some(())
    })
    .await;
    assert!(file.exists());
    assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
}

#[tokio::test]
async fn it_excludes_activity_types() {
    let launch = launch(&["demo", "--web.listen-address=127.0.0.1:0"])
        .flag("--otlp.exclude-activity-types", "DOCUMENT_*, *_UPDATED");
    let demo = launch.start();
    let metrics = url(&demo, "what Prometheus scrapes").await;
    until("records that are not sent", async || {
        let text = page(&metrics).await;
        let excluded = "orgdata_audit_entries_excluded_total{from=\"records\"} ";
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(excluded));
        let number: u64 = lines.next()?.parse().ok()?;
        (number > 10).then_some(())
    })
    .await;
    let is_record = |line: &str| line.contains("orgdata.audit.");
    demo.stdout().until("a log record", is_record).await;
    let text = demo.stdout().text();
    for excluded in ["orgdata.audit.document_", "_updated "] {
        assert!(!text.contains(excluded), "{text}");
    }
}

#[tokio::test]
async fn it_leaves_the_state_file_of_an_exporter_alone_and_names_the_collector() {
    let collector = Peer::grpc(4 << 20).await;
    let endpoint = collector.url();
    let launch = launch(&["demo", "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_STATE_PATH", "state.db")
        .otlp("grpc", &endpoint);
    let file = launch.dir().join("state.db");
    let mut demo = launch.start();
    let names = format!("is delivered as a log record to {endpoint}");
    let is_named = |line: &str| line.contains(&names);
    demo.stdout().until("the collector", is_named).await;
    let arrives = async || (!collector.taken_ids().is_empty()).then_some(());
    until("a log record", arrives).await;
    assert!(!file.exists());
    assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
}
