//! The demo: one command, no configuration, and everything works; also twice on one machine.

use crate::support::binary::{Exporter, client, launch, until};
use crate::support::collector_peer::Peer;
use crate::support::files::{file, masked};

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
    // In use by this test, or by another process.
    let _taken = std::net::TcpListener::bind("127.0.0.1:10917");
    // Nothing on this machine is requested through a proxy, not even one that is gone.
    let one = launch(&["demo"]).env("HTTP_PROXY", "http://127.0.0.1:1");
    let one = one.env("ALL_PROXY", "http://127.0.0.1:1").start();
    let two = launch(&["demo", "--state.path=demo.db", "--web.telemetry-path=/m"])
        .env("ORGDATA_METRICS_ACTOR_LABEL", "none");
    let file = two.dir().join("demo.db");
    let two = two.start();
    let note = |line: &str| line.contains("(port 10917 is in use)");
    let mut landings = Vec::new();
    for (mut demo, path, has_actors) in [(one, "/metrics", true), (two, "/m", false)] {
        demo.stdout().until("the note", note).await;
        let landing = url(&demo, "what the exporter is doing").await;
        let metrics = url(&demo, "what Prometheus scrapes").await;
        assert!(metrics.ends_with(path), "{metrics}");
        let simulator = url(&demo, "the simulator").await;
        until("events and tickets in the metrics", async || {
            let text = page(&metrics).await;
            let seen = |family: &str| {
                let mut lines = text.lines().filter(|line| line.starts_with(family));
                lines.any(|line| !line.ends_with(" 0"))
            };
            let is_there = seen("orgdata_audit_events_total{") && seen("orgdata_tickets{");
            is_there.then(|| assert_eq!(text.contains("actor="), has_actors))
        })
        .await;
        let is_record = |line: &str| line.contains("orgdata.audit.") && line.contains(" id=");
        demo.stdout().until("a log record", is_record).await;
        assert!(page(&landing).await.contains("</html>"));
        assert!(page(&simulator).await.contains("/control/"));
        landings.push(landing);
        assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
    }
    assert_ne!(landings[0], landings[1]);
    assert!(file.exists());
}

#[tokio::test]
async fn it_leaves_the_state_file_of_an_exporter_alone_and_names_the_collector() {
    let collector = Peer::grpc(4 << 20).await;
    let launch = launch(&["demo", "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_STATE_PATH", "state.db")
        .otlp("grpc", &collector.url());
    let demo = launch.start();
    let names = format!("is delivered as a log record to {}", collector.url());
    let is_named = |line: &str| line.contains(&names);
    demo.stdout().until("the collector", is_named).await;
    let arrives = async || (!collector.taken_ids().is_empty()).then_some(());
    until("a log record", arrives).await;
    assert!(!launch.dir().join("state.db").exists());
}

/// What README shows of the demo, and the failure that it causes.
#[tokio::test]
async fn the_transcripts_in_readme_are_what_is_printed() {
    let readme = file("README.md");
    let (_, shown) = readme.split_once("```text\n").unwrap();
    let (shown, rest) = shown.split_once("```").unwrap();
    // The usual port may be in use, which the demo would say.
    let demo = launch(&["demo", "--web.listen-address=127.0.0.1:0"]).start();
    for line in masked(shown).iter().filter(|line| line.contains("http")) {
        // The address is another one.
        let text = |line: &str| line.split(' ').skip(1).collect::<Vec<_>>().join(" ");
        let is_it = |printed: &str| masked(printed).iter().any(|it| text(it) == text(line));
        demo.stdout().until(line, is_it).await;
    }
    let is_record = |line: &str| line.contains("orgdata.audit.") && line.contains(" id=");
    demo.stdout().until("a log record", is_record).await;
    let metrics = url(&demo, "what Prometheus scrapes").await;
    let (_, sample) = rest.split_once("/metrics\n").unwrap();
    let sample = sample.split("```").next().unwrap();
    let names = sample
        .lines()
        .filter_map(|line| line.split_once(['{', ' ']));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert_eq!(names.len(), 6);
    until("the metrics", async || {
        let text = page(&metrics).await;
        names.iter().all(|name| text.contains(name)).then_some(())
    })
    .await;
    let (_, fault) = rest.split_once("curl -d '").unwrap();
    let fault = fault.split('\'').next().unwrap().to_owned();
    let control = url(&demo, "the simulator").await + "control/";
    let sent = client().post(control).body(fault).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    let landing = url(&demo, "what the exporter is doing").await;
    let fails = async || page(&landing).await.contains("Failing").then_some(());
    until("the failure", fails).await;
}
