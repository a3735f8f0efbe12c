//! A whole scrape: the same lines every time, in both formats, and nothing that a strict parser refuses.

use orgdata_exporter::metrics::exposition::Format;

use crate::support::busy::{busy, encode};

/// Families whose values differ from run to run.
const VARYING: &str = "
    process_cpu_seconds_total process_resident_memory_bytes process_virtual_memory_bytes
    process_virtual_memory_max_bytes process_open_fds process_max_fds process_start_time_seconds
    orgdata_audit_behind_since_timestamp_seconds orgdata_last_success_timestamp_seconds orgdata_tickets_snapshot_timestamp_seconds
    orgdata_tickets_snapshot_duration_seconds";

/// Families that a scrape sorts by their labels.
const SORTED: [&str; 4] = [
    "orgdata_audit_",
    "orgdata_tickets",
    "orgdata_open_tickets",
    "orgdata_deals_",
];

/// Returns the scrape with a word in place of what differs from run to run, and the samples of the other families in order.
fn masked(scrape: &str) -> String {
    let mask = |line: &str| {
        let name = line.split(['{', ' ']).next().unwrap();
        let varies = VARYING.split_whitespace().any(|other| other == name);
        match line.rsplit_once(' ') {
            _ if line.starts_with('#') => format!("{line}\n"),
            _ if name == "orgdata_exporter_build_info" => format!("{name}{{VARIES}} 1\n"),
            Some((series, _)) if varies => format!("{series} VARIES\n"),
            _ => format!("{line}\n"),
        }
    };
    let mut lines: Vec<String> = scrape.lines().map(mask).collect();
    let samples = lines.chunk_by_mut(|a, b| !a.starts_with('#') && !b.starts_with('#'));
    let is_random =
        |samples: &&mut [String]| !SORTED.iter().any(|start| samples[0].starts_with(start));
    samples
        .filter(is_random)
        .for_each(<[String]>::sort_unstable);
    lines.concat()
}

#[tokio::test]
async fn the_whole_scrape_in_both_forms() {
    let metrics = busy();
    for (name, format) in [
        ("scrape-openmetrics.txt", Format::OpenMetrics),
        ("scrape-text.txt", Format::Text),
    ] {
        let actual = masked(&encode(&metrics, format));
        let directory = env!("CARGO_MANIFEST_DIR");
        let path = format!("{directory}/tests/golden/{name}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &actual).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        let mut lines = actual.lines().zip(expected.lines());
        let differs = lines.find(|(actual, expected)| actual != expected);
        let is_equal = differs.is_none() && actual.len() == expected.len();
        assert!(is_equal, "{path}: {differs:?}; UPDATE_GOLDEN=1 updates it");
    }
}
