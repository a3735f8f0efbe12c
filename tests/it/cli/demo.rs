//! The demo: one command, no configuration, and everything works; also twice on one machine.

use crate::support::binary::{Exporter, Scrape, client, launch, until};
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
async fn two_demos_work_on_one_machine_and_leave_the_state_file_of_an_exporter_alone() {
    // In use by this test, or by another process.
    let _taken = std::net::TcpListener::bind("127.0.0.1:10917");
    let (collector, real) = (Peer::grpc(4 << 20).await, Peer::http(4 << 20).await);
    // Nothing on this machine is requested through a proxy, not even one that is gone. The variables of an exporter, even wrong ones, are not the demo's.
    let one = launch(&["demo"])
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ORGDATA_STATE_PATH", "state.db")
        .env("ORGDATA_AUDIT_START", "\"24h\"")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &real.url())
        .env("ORGDATA_OTLP_ENDPOINT", &real.url());
    let two = launch(&["demo", "--state.path=demo.db", "--web.telemetry-path=/m"])
        .arg("--metrics.actor-label=none")
        .otlp("grpc", &collector.url());
    let states = [one.dir().join("state.db"), two.dir().join("demo.db")];
    let note = |line: &str| line.contains("(port 10917 is in use)");
    for (mut demo, path, has_actors) in
        [(one.start(), "/metrics", true), (two.start(), "/m", false)]
    {
        demo.stdout().until("the note", note).await;
        let metrics = url(&demo, "what Prometheus scrapes").await;
        assert!(metrics.ends_with(path), "{metrics}");
        until("events, tickets and records", async || {
            let scrape = Scrape(page(&metrics).await);
            let is_there = |family| scrape.sum(family) > 0.0;
            let are_there = is_there("orgdata_audit_events_total") && is_there("orgdata_tickets");
            let is_sent = has_actors || !collector.taken_ids().is_empty();
            (are_there && is_sent).then(|| assert_eq!(scrape.0.contains("actor="), has_actors))
        })
        .await;
        assert_eq!(demo.stop().await, Some(0), "{}", demo.stderr().text());
    }
    assert_eq!(states.map(|file| file.exists()), [false, true]);
    assert_eq!(real.taken_ids().len(), 0, "invented events");
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
