//! `--to openmetrics FILE`: the counters as they would have stood, and the seam to the live ones.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    AfterReading, Config, Fault, Fields, KeyReading, Readings, Running,
};

use super::support::{backfill, hours, live, to_file, world, world_of};
use crate::support::binary::{Exporter, Finished, launch};
use crate::support::openmetrics::{Family, parse};

/// By activity type and actor.
type Counts = BTreeMap<(String, String), u64>;

fn label<'a>(labels: &'a [(String, String)], name: &str) -> &'a str {
    labels
        .iter()
        .find(|(other, _)| other == name)
        .map_or("", |(_, value)| value)
}

/// The file, as a strict parser reads it.
fn family(file: &Path) -> Family {
    let text = std::fs::read_to_string(file).expect("a file");
    assert!(text.ends_with("\n# EOF\n"));
    let mut families = parse(&text).expect("OpenMetrics");
    assert_eq!(families.len(), 1);
    families.remove(0)
}

/// The last value of each series: all of its events, since each begins with 0.
fn totals(family: &Family) -> Counts {
    let mut totals: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for sample in &family.samples {
        let labels = ["activity_type", "actor"].map(|name| label(&sample.labels, name).to_owned());
        totals
            .entry((labels[0].clone(), labels[1].clone()))
            .or_default()
            .push(sample.value as u64);
    }
    assert!(
        totals
            .values()
            .all(|values| values[0] == 0 && values.is_sorted()),
        "each begins with 0 and never falls"
    );
    totals
        .into_iter()
        .map(|(labels, values)| (labels, values[values.len() - 1]))
        .collect()
}

fn truth(simulator: &Running, wanted: impl Fn(Timestamp) -> bool) -> Counts {
    let mut counts = Counts::new();
    for entry in simulator
        .simulator()
        .entries()
        .filter(|entry| wanted(entry.created_at))
    {
        let actor = entry
            .actor
            .map_or_else(|| "none".to_owned(), |id| id.to_string());
        *counts.entry((entry.activity_type, actor)).or_default() += 1;
    }
    counts
}

fn add(one: Counts, other: Counts) -> Counts {
    let mut sum = one;
    for (labels, count) in other {
        *sum.entry(labels).or_default() += count;
    }
    sum.retain(|_, count| *count > 0);
    sum
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

fn ended(finished: &Finished) {
    assert_eq!(finished.status, Some(0), "{finished:?}");
}

/// What the exporter counts.
async fn counted(exporter: &Exporter) -> Counts {
    let text = exporter.metrics().await;
    let mut counts = Counts::new();
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("orgdata_audit_events_total{"))
    {
        let (labels, value) = line.rsplit_once("} ").expect("a value");
        let of = |name: &str| {
            labels
                .split_once(&format!("{name}=\""))
                .and_then(|(_, rest)| rest.split('"').next())
                .expect("a label")
                .to_owned()
        };
        counts.insert(
            (of("activity_type"), of("actor")),
            value.parse().expect("a number"),
        );
    }
    counts.retain(|_, count| *count > 0);
    counts
}

#[tokio::test]
async fn the_counters_are_those_of_the_range_and_stand_on_the_steps() {
    let simulator = world(3_000).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.om");
    let (from, end) = (
        simulator.simulator().now() - SignedDuration::from_hours(48),
        simulator.simulator().now() - SignedDuration::from_hours(7),
    );
    let run = to_file(
        &simulator,
        &file,
        &[
            &format!("--from={from}"),
            &format!("--until={end}"),
            "--label=job=orgdata-exporter",
            "--label=instance=a:1",
            "--step=30s",
            "--fill=5m",
        ],
    )
    .run()
    .await;
    ended(&run);
    let family = family(&file);
    let expected = truth(&simulator, |at| at >= from && at < end);
    assert!(sum(&expected) > 500);
    assert_eq!(totals(&family), expected);
    assert!(
        run.stdout
            .contains(&format!("{} audit events", sum(&expected)))
            && run
                .stdout
                .contains("promtool tsdb create-blocks-from --max-block-duration=744h openmetrics"),
        "{}",
        run.stdout
    );
    let last = (end - SignedDuration::from_mins(1)).as_second() as f64;
    for sample in &family.samples {
        let time = sample.time.expect("a time");
        assert!(time % 30.0 == 0.0 && time <= last);
        assert_eq!(
            (
                label(&sample.labels, "job"),
                label(&sample.labels, "instance")
            ),
            ("orgdata-exporter", "a:1")
        );
    }
    // At each sample a series shows what had been created by then, but for those of the last minute, which the last sample shows.
    let (activity_type, actor) = expected
        .iter()
        .max_by_key(|(_, count)| **count)
        .map(|(labels, _)| labels.clone())
        .expect("a series");
    let times: Vec<Timestamp> = simulator
        .simulator()
        .entries()
        .filter(|entry| {
            entry.created_at >= from
                && entry.created_at < end
                && entry.activity_type == activity_type
        })
        .filter(|entry| {
            entry
                .actor
                .map_or_else(|| "none".to_owned(), |id| id.to_string())
                == actor
        })
        .map(|entry| entry.created_at)
        .collect();
    let grid_end = (last / 30.0).floor() * 30.0;
    let own = family.samples.iter().filter(|sample| {
        label(&sample.labels, "activity_type") == activity_type
            && label(&sample.labels, "actor") == actor
    });
    for sample in own.filter(|sample| sample.time.expect("a time") < grid_end) {
        let by_then = times
            .iter()
            .filter(|at| at.as_millisecond() as f64 / 1000.0 <= sample.time.expect("a time"))
            .count();
        assert_eq!(sample.value, by_then as f64);
    }
    assert_eq!(
        std::fs::read_dir(directory.path())
            .expect("a directory")
            .count(),
        1,
        "nothing else is left"
    );
}

#[tokio::test]
async fn every_reading_of_the_specification_and_a_failing_service_give_the_same_counts() {
    for (name, readings) in [
        (
            "newest page",
            Readings {
                after: AfterReading::Newest,
                ..Readings::default()
            },
        ),
        (
            "the cursor's own entry again",
            Readings {
                before_inclusive: true,
                ..Readings::default()
            },
        ),
        (
            "capped pages",
            Readings {
                page_cap: Some(60),
                no_date: true,
                after_inclusive: true,
                ..Readings::default()
            },
        ),
        (
            "arrival",
            Readings {
                key: KeyReading::Arrival,
                ..Readings::default()
            },
        ),
    ] {
        let faults = [
            "500,every=9",
            "truncated-json,every=11",
            "duplicate,every=3",
            "empty-page,every=5",
        ]
        .map(|fault| fault.parse::<Fault>().expect("a fault"));
        let simulator = world_of(Config {
            history: 900,
            rate: 0.0,
            tickets: 0,
            ticket_change_rate: 0.0,
            readings,
            ..Config::default()
        })
        .await;
        simulator.simulator().add_late(20, hours(30));
        let expected = truth(&simulator, |_| true);
        let end = simulator.simulator().now() + SignedDuration::from_secs(1);
        faults.into_iter().for_each(|fault| {
            simulator.simulator().fault(fault);
        });
        let newer = simulator.simulator().clone();
        newer.advance(hours(1));
        simulator.simulator().on_request(Box::new(move |_, _| {
            newer.add_events(2);
            None
        }));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("history.om");
        ended(
            &to_file(
                &simulator,
                &file,
                &[&format!("--until={end}"), "--api.page-size=100"],
            )
            .run()
            .await,
        );
        assert_eq!(totals(&family(&file)), expected, "{name}");
    }
}

/// The seam: what the exporter found when it began is in the file, what came since is in its counters, and nothing is in both. The newest
/// entry may be of the very moment when it began, or hours older.
#[tokio::test]
async fn the_file_ends_where_the_live_counters_begin() {
    for (quiet, start) in [(0, "now"), (45, "now"), (45, "oldest")] {
        let simulator = world(1_500).await;
        let service = simulator.simulator();
        service.add_events(5);
        service.advance(std::time::Duration::from_secs(quiet * 60));
        let directory = tempfile::tempdir().expect("a directory");
        let (state, file) = (
            directory.path().join("state.db"),
            directory.path().join("history.om"),
        );
        let exporter = live(&simulator, &state)
            .arg("--audit.reread-interval=100ms")
            .arg(&format!("--audit.start={start}"))
            .start();
        exporter
            .until_value("orgdata_up{loop=\"audit\"}", 1.0)
            .await;
        // At once, a moment later, and late: dated after the exporter began, and before.
        service.advance(std::time::Duration::from_secs(1));
        service.add_events(40);
        service.advance(std::time::Duration::from_secs(600));
        service.add_events(60);
        service.add_late(4, std::time::Duration::from_secs(300));
        let events = |counts: &Counts| sum(counts);
        crate::support::binary::until("all is counted", async || {
            (events(&counted(&exporter).await) == 104).then_some(())
        })
        .await;
        service.add_late(6, std::time::Duration::from_secs(86_400));

        let run = to_file(
            &simulator,
            &file,
            &[&format!("--state.path={}", state.display())],
        )
        .run()
        .await;
        ended(&run);
        let (past, live) = (totals(&family(&file)), counted(&exporter).await);
        assert_eq!(
            (sum(&past), sum(&live)),
            (1_511, 104),
            "{quiet} minutes, {start}"
        );
        assert_eq!(add(past, live), truth(&simulator, |_| true));

        // Elsewhere it says what that means.
        let state = format!("--state.path={}", state.display());
        for (until, words) in [
            ("--until=6h", "in neither"),
            ("--until=3h", "counted twice"),
        ] {
            let other = to_file(&simulator, &file, &[until, &state]).run().await;
            ended(&other);
            assert!(other.stderr.contains(words), "{until}: {}", other.stderr);
        }
        let filtered = to_file(&simulator, &file, &[&state, "--audit.deal-ids=1"])
            .run()
            .await;
        assert!(
            filtered.refusal(2).contains("other filters"),
            "{filtered:?}"
        );
    }
}

#[tokio::test]
async fn soon_after_the_exporter_began_it_says_from_when_on_it_works() {
    let simulator = world(100).await;
    simulator.simulator().advance(hours(5));
    simulator.simulator().add_events(1);
    let directory = tempfile::tempdir().expect("a directory");
    let (state, file) = (
        directory.path().join("state.db"),
        directory.path().join("history.om"),
    );
    let exporter = live(&simulator, &state).start();
    exporter
        .until_value("orgdata_up{loop=\"audit\"}", 1.0)
        .await;
    let state = format!("--state.path={}", state.display());
    let early = to_file(&simulator, &file, &[&state]).run().await;
    let line = early.refusal(1);
    assert!(
        line.contains("too early")
            && line.contains("run this again from")
            && line.contains("--allow-recent"),
        "{line}"
    );
    assert!(!file.exists());
    ended(
        &to_file(&simulator, &file, &[&state, "--allow-recent"])
            .run()
            .await,
    );
    assert_eq!(sum(&totals(&family(&file))), 101);
}

#[tokio::test]
async fn a_kill_leaves_no_file_and_the_next_run_writes_it() {
    let simulator = world(2_000).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.om");
    for signal in ["KILL", "TERM"] {
        let mut running = to_file(
            &simulator,
            &file,
            &[
                "--until=4h",
                "--api.page-size=20",
                "--api.max-requests-per-second=20",
            ],
        )
        .start();
        simulator.simulator().clear_requests();
        crate::support::binary::until("it reads", async || {
            (simulator.simulator().requests().audit > 3).then_some(())
        })
        .await;
        running.signal(signal).await;
        let status = running.ended().await;
        assert!(!file.exists());
        if signal == "TERM" {
            assert_eq!(status, Some(1));
            running
                .stderr()
                .until("the last words", |line| {
                    line.contains("nothing was written")
                })
                .await;
            assert_eq!(
                std::fs::read_dir(directory.path())
                    .expect("a directory")
                    .count(),
                0
            );
        }
    }
    ended(&to_file(&simulator, &file, &["--until=4h"]).run().await);
    assert_eq!(sum(&totals(&family(&file))), 2_000);
    assert_eq!(
        std::fs::read_dir(directory.path())
            .expect("a directory")
            .count(),
        1
    );
}

#[tokio::test]
async fn labels_are_those_of_the_exporter() {
    let simulator = world(1_000).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.om");
    ended(
        &to_file(&simulator, &file, &["--until=4h", "--metrics.max-actors=3"])
            .run()
            .await,
    );
    let folded = totals(&family(&file));
    let actors: std::collections::BTreeSet<&String> =
        folded.keys().map(|(_, actor)| actor).collect();
    assert!(
        actors.len() <= 5
            && actors.contains(&"other".to_owned())
            && actors.contains(&"none".to_owned()),
        "{actors:?}"
    );
    assert_eq!(sum(&folded), 1_000);

    ended(
        &to_file(
            &simulator,
            &file,
            &["--until=4h", "--metrics.actor-label=none"],
        )
        .run()
        .await,
    );
    let without = family(&file);
    assert!(
        without
            .samples
            .iter()
            .all(|sample| sample.labels.len() == 1)
    );
    assert_eq!(sum(&totals(&without)), 1_000);

    // Names need escaping, and a NUL would end the file for Prometheus.
    let user = serde_json::json!({ "id": 1, "firstName": "Zoë \"Zed\" \\", "lastName": "back\nslash\u{0}", "profileImageUrl": null });
    simulator
        .simulator()
        .add_entry(&Fields::new().with("actorUserId", 1).with("actorUser", user))
        .expect("valid fields");
    simulator
        .simulator()
        .advance(std::time::Duration::from_secs(120));
    ended(
        &to_file(
            &simulator,
            &file,
            &["--until=4h", "--metrics.actor-label=name"],
        )
        .run()
        .await,
    );
    assert!(
        totals(&family(&file))
            .keys()
            .any(|(_, actor)| actor == "Zoë \"Zed\" \\ back\nslash\u{fffd}")
    );
}

#[tokio::test]
async fn a_dry_run_counts_and_writes_nothing() {
    let simulator = world(1_234).await;
    for target in [
        &["--to", "otlp"][..],
        &["--to", "openmetrics"],
        &["--to", "openmetrics", "x.om"],
    ] {
        let launch = backfill(&simulator, target).args(&["--dry-run", "--until=now"]);
        let directory = launch.dir().to_owned();
        let watched = tempfile::tempdir_in(&directory).expect("a directory");
        let run = launch.run().await;
        ended(&run);
        assert!(
            run.stdout.starts_with("1234 audit entries; oldest 20"),
            "{}",
            run.stdout
        );
        assert!(run.stdout.contains("TASK_COMPLETED"), "{}", run.stdout);
        drop(watched);
    }
}

#[tokio::test]
async fn an_empty_range_is_a_whole_file_without_samples() {
    let simulator = world(0).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("history.om");
    let run = to_file(&simulator, &file, &["--until=4h"]).run().await;
    ended(&run);
    assert!(run.stdout.contains("nothing to create blocks from"));
    assert!(family(&file).samples.is_empty());
}

/// `launch` alone, for what needs no world.
#[tokio::test]
async fn the_help_names_what_matters_here_and_not_what_does_not() {
    let help = launch(&["backfill", "--help"]).run().await;
    ended(&help);
    for flag in [
        "--to",
        "--until",
        "--step",
        "--fill",
        "--label",
        "--progress",
        "--dry-run",
        "--otlp.endpoint",
        "--audit.activity-types",
        "--metrics.max-actors",
    ] {
        assert!(help.stdout.contains(flag), "{flag}");
    }
    for flag in [
        "--web.listen-address",
        "--tickets.scan-interval",
        "--audit.start",
    ] {
        assert!(!help.stdout.contains(flag), "{flag}");
    }
}
