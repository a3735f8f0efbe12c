//! What Helm prints after an installation.

use super::{BASE, CHART, NAME, features, helm};
use crate::support::files::path;

/// Returns the notes of a release called `orgdata-exporter`.
fn notes(values: &str) -> String {
    let install = ["install", NAME, "--dry-run=client"];
    let printed = helm(&install, &path(CHART), values).unwrap();
    let (_, notes) = printed.split_once("\nNOTES:\n").unwrap();
    notes.to_owned()
}

#[test]
#[ignore = "needs helm"]
fn the_notes_say_what_to_do_next() {
    let always = "rollout status statefulset/| logs |port-forward statefulset/|/-/ready|orgdata-exporter check|helm test";
    for (feature, values) in features() {
        let notes = notes(&values);
        let is_whole = always.split('|').all(|words| notes.contains(words));
        assert!(is_whole, "{feature}: {notes}");
        for never in ["not-a-real-key", "<nil>", "no value", "\n\n\n"] {
            assert!(!notes.contains(never), "{feature}: {notes}");
        }
        let is_narrow = notes.lines().all(|line| line.len() <= 140);
        assert!(is_narrow, "{feature}: {notes}");
    }
    let of = |feature: &str| features().remove(feature).unwrap_or(BASE.to_owned());
    let create = "create secret generic orgdata-exporter-api-key --from-file=api-key=FILE";
    let own = "create secret generic audit-reader --from-file=token=FILE";
    for (feature, words) in [
        ("least", "Next step"),
        ("least", create),
        ("least", "Prometheus does not scrape it yet"),
        ("least", "no log records are sent"),
        ("api", own),
        ("key", "WARNING: the API key is in the value api.key"),
        ("tls", "curl -k https://127.0.0.1:10917/-/ready"),
        ("tls", "set web.probes to tcp"),
        ("pod-monitor", "Prometheus has the job orgdata-exporter"),
        ("no-persistence", "WARNING: persistence is off"),
        ("labels", "exec audit-0 -c orgdata-exporter"),
        ("key", "! Next step"),
        ("web-pod-monitor", "! web.probes"),
        ("otlp", "! no log records are sent"),
    ] {
        let notes = notes(&of(feature));
        let shown = words.trim_start_matches("! ");
        assert_eq!(
            notes.contains(shown),
            shown == words,
            "{feature}, {words}: {notes}"
        );
    }
}
