//! What Helm prints after an installation.

use super::{BASE, CHART, NAME, features, helm};
use crate::support::files::path;

/// Returns the notes of a release called `orgdata-exporter`.
fn notes(values: &str) -> String {
    let install = ["install", NAME, "--dry-run=client"];
    let printed = helm(&install, &path(CHART), values).unwrap();
    printed
        .split_once(
            "
NOTES:
",
        )
        .unwrap()
        .1
        .to_owned()
}

#[test]
#[ignore = "needs helm"]
fn the_notes_say_what_to_do_next() {
    let always = "rollout status statefulset/| logs |port-forward statefulset/|/-/ready|orgdata-exporter check";
    for (feature, values) in features() {
        let notes = notes(&values);
        assert!(
            always.split('|').all(|words| notes.contains(words)),
            "{feature}: {notes}"
        );
        for never in ["not-a-real-key", "<nil>", "no value", "\n\n\n"] {
            assert!(!notes.contains(never), "{feature}: {notes}");
        }
        assert!(
            notes.lines().all(|line| line.len() <= 140),
            "{feature}: {notes}"
        );
    }
    let api = features()["api"].clone();
    let of = |feature: &str| {
        features()
            .remove(feature)
            .unwrap_or_else(|| BASE.to_owned())
    };
    for (values, words) in [
        (BASE.to_owned(), "NEXT STEP"),
        (
            BASE.to_owned(),
            "create secret generic orgdata-exporter-api-key --from-file=api-key=FILE",
        ),
        (BASE.to_owned(), "Nothing tells Prometheus"),
        (BASE.to_owned(), "no log records are sent"),
        (
            api,
            "create secret generic audit-reader --from-file=token=FILE",
        ),
        (of("key"), "WARNING: the API key came as the value api.key"),
        (of("tls"), "curl -k https://127.0.0.1:10917/-/ready"),
        (of("tls"), "set web.probes to tcp"),
        (of("pod-monitor"), "Prometheus has the job orgdata-exporter"),
        (of("no-persistence"), "WARNING: persistence is off"),
        (of("labels"), "exec audit-0 -c orgdata-exporter"),
    ] {
        let notes = notes(&values);
        assert!(notes.contains(words), "{words}: {notes}");
    }
    for (feature, words) in [
        ("key", "NEXT STEP"),
        ("web-pod-monitor", "web.probes"),
        ("otlp", "no log records are sent"),
    ] {
        assert!(!notes(&of(feature)).contains(words), "{feature}: {words}");
    }
}
