//! Help, version, and the simulator as a command.

use crate::support::binary::{KEY, client, launch};

/// Every flag of the exporter's public interface.
const FLAGS: [&str; 37] = [
    "--api.base-url",
    "--api.key-file",
    "--api.timeout",
    "--api.max-requests-per-second",
    "--api.page-size",
    "--api.ca-file",
    "--api.allow-plain-http",
    "--audit.enabled",
    "--tickets.enabled",
    "--audit.poll-interval",
    "--audit.start",
    "--audit.activity-types",
    "--audit.deal-ids",
    "--audit.actor-emails",
    "--audit.target-emails",
    "--audit.reread-interval",
    "--audit.reread-window",
    "--tickets.scan-interval",
    "--tickets.max-age",
    "--tickets.open-states",
    "--tickets.priorities",
    "--metrics.actor-label",
    "--metrics.hash-key-file",
    "--metrics.max-actors",
    "--metrics.actor-idle",
    "--metrics.zero-hold",
    "--state.path",
    "--state.max-size",
    "--otlp.endpoint",
    "--otlp.protocol",
    "--otlp.batch-size",
    "--otlp.user-names",
    "--otlp.redact",
    "--web.listen-address",
    "--web.telemetry-path",
    "--log.level",
    "--shutdown.grace",
];

#[tokio::test]
async fn help_names_every_flag_and_its_variable() {
    for arguments in [&["--help"][..], &["demo", "--help"]] {
        let finished = launch(arguments).run().await;
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
        for flag in FLAGS {
            let variable = format!(
                "ORGDATA_{}",
                flag[2..].to_uppercase().replace(['.', '-'], "_")
            );
            assert!(
                finished.stdout.contains(&format!("{flag} "))
                    && finished.stdout.contains(&variable),
                "{flag}"
            );
        }
        assert!(finished.stdout.contains("ORGDATA_API_KEY"));
    }
}

#[tokio::test]
async fn help_does_not_show_the_key() {
    let finished = launch(&["--help"]).env("ORGDATA_API_KEY", KEY).run().await;
    assert!(!finished.stdout.contains(KEY), "{}", finished.stdout);
}

#[tokio::test]
async fn the_version_is_the_crate_s() {
    let finished = launch(&["--version"]).run().await;
    assert_eq!(
        (finished.status, finished.stdout),
        (
            Some(0),
            format!("orgdata-exporter {}\n", env!("CARGO_PKG_VERSION"))
        )
    );
}

#[tokio::test]
async fn the_simulator_says_where_it_is_and_serves_until_it_is_told_to_stop() {
    let mut simulator = launch(&[
        "simulate",
        "--listen=127.0.0.1:0",
        "--api-key=k1",
        "--history=3",
    ])
    .start();
    let line = simulator
        .stdout()
        .until("its address", |line| line.contains("http://"))
        .await;
    let url = line
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .expect("an address")
        .trim_end_matches('/')
        .to_owned();
    let get = async |path: &str, key: &str| {
        let response = client()
            .get(format!("{url}{path}"))
            .header("X-API-Key", key)
            .send()
            .await
            .expect("it answers");
        (
            response.status().as_u16(),
            response.text().await.expect("whole"),
        )
    };
    let (status, page) = get("/v1/audit-logs?limit=10", "k1").await;
    assert_eq!(
        (status, page.matches("\"occurredAt\"").count() >= 3),
        (200, true),
        "{page}"
    );
    assert_eq!(get("/v1/audit-logs", "k2").await.0, 401);
    assert_eq!(get("/control/truth", "").await.0, 200);
    assert_eq!(simulator.stop().await, Some(0));
}
