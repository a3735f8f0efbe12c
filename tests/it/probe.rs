//! The command `probe` of the built binary: what it prints, and its exit status.

use orgdata_exporter::simulator::{ApiKey, Config};
use serde_json::Value;

use crate::support::binary::{Finished, KEY, launch};
use crate::support::files::array;
use crate::support::service::spawn;

/// Probes a small organization.
async fn probe(change: impl FnOnce(&mut Config), format: &str) -> Finished {
    let (history, tickets, compression) = (30, 10, true);
    let mut config = Config {
        history,
        tickets,
        compression,
        ..Config::quiet()
    };
    change(&mut config);
    let api = spawn(config).await;
    let launch = launch(&["probe", "--api.max-requests-per-second=1000", format]);
    let launch = launch.env("ORGDATA_API_BASE_URL", &api.base_url());
    launch.env("ORGDATA_API_KEY", KEY).run().await
}

#[tokio::test]
async fn answers_are_printed_with_what_the_exporter_does() {
    let finished = probe(|_| {}, "--format=text").await;
    assert_eq!((finished.status, &*finished.stderr), (Some(0), ""));
    for words in [
        "compression                            gzip (in a response)\n",
        "\n                                       the exporter accepts gzip\n",
        "largest page                           cannot tell: a limit of 1000 brought 30",
        "\nThe exporter copes with everything that was found. ",
        " of at most 80 requests were sent.\n",
    ] {
        assert!(finished.stdout.contains(words), "{words}: {finished:?}");
    }
}

#[tokio::test]
async fn the_document_has_the_same_answers_and_the_status_says_if_one_is_bad() {
    let ignored = |config: &mut Config| config.readings.ignore_offset = true;
    let denied = |config: &mut Config| config.keys = vec![ApiKey::scoped(KEY, &["tickets:read"])];
    let ignored = probe(ignored, "--format=json").await;
    let denied = probe(denied, "--format=json").await;
    for (finished, status, question, answer) in [
        (ignored, 1, "tickets: offset", Some("ignored")),
        (denied, 2, "before", None),
    ] {
        let says_why = finished.stderr.contains("orgdata-exporter check");
        assert_eq!((finished.status, says_why), (Some(status), status == 2));
        let document: Value = serde_json::from_str(&finished.stdout).unwrap();
        let mut answers = array(&document["answers"]).iter();
        let line = answers.find(|line| line["question"] == question).unwrap();
        assert_eq!(line["answer"].as_str(), answer);
        assert_eq!(line["advice"].is_string(), answer.is_some(), "{line}");
        assert!(document["requests"].as_u64() > Some(0) && document["version"].is_string());
    }
}
