//! The command `probe` of the built binary: what it prints, and its exit status.

use orgdata_exporter::simulator::{ApiKey, Config};
use serde_json::Value;

use crate::support::binary::{Finished, KEY, launch};
use crate::support::service::spawn;

/// Probes a small organization.
async fn probe(change: impl FnOnce(&mut Config), arguments: &[&str]) -> Finished {
    let (history, tickets) = (30, 10);
    let mut config = Config {
        history,
        tickets,
        compression: true,
        ..Config::quiet()
    };
    change(&mut config);
    let api = spawn(config).await;
    let launch = launch(&["probe", "--api.max-requests-per-second=1000"]);
    let launch = launch.env("ORGDATA_API_BASE_URL", &api.base_url());
    launch
        .env("ORGDATA_API_KEY", KEY)
        .args(arguments)
        .run()
        .await
}

#[tokio::test]
async fn answers_are_printed_with_what_the_exporter_does() {
    let finished = probe(|_| {}, &[]).await;
    assert_eq!((finished.status, &*finished.stderr), (Some(0), ""));
    for words in [
        "compression                            gzip (in a response)\n",
        "\n                                       the exporter accepts gzip\n",
        "largest page                           cannot tell: a limit of 1000 brought 30",
        " of at most 80 requests were sent.\n",
    ] {
        assert!(
            finished.stdout.contains(words),
            "{words}: {}",
            finished.stdout
        );
    }
}

#[tokio::test]
async fn the_document_has_the_same_answers_and_the_status_says_if_one_is_bad() {
    let ignored = |config: &mut Config| config.readings.ignore_offset = true;
    let denied = |config: &mut Config| config.keys = vec![ApiKey::scoped(KEY, &["tickets:read"])];
    let json = ["--format=json"];
    for (finished, status, question, answer) in [
        (
            probe(ignored, &json).await,
            1,
            "tickets: offset",
            Some("ignored"),
        ),
        (probe(denied, &json).await, 2, "before", None),
    ] {
        assert_eq!((finished.status, &*finished.stderr), (Some(status), ""));
        let document: Value = serde_json::from_str(&finished.stdout).unwrap();
        let mut answers = document["answers"].as_array().unwrap().iter();
        let line = answers.find(|line| line["question"] == question).unwrap();
        assert_eq!(line["answer"].as_str(), answer);
        assert_eq!(line["advice"].is_string(), answer.is_some(), "{line}");
        assert!(document["requests"].as_u64() > Some(0) && document["version"].is_string());
    }
}
