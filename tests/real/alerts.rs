//! 33 days of two organizations on a real Prometheus: alerts and detections fire for what was planted, at its time, and for nothing else.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::ops::Range;

use serde_json::Value;

use crate::support::files::{array, text, yaml};
use crate::support::parts::{Prometheus, number, run};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Between two scrapes. Prometheus still shows a sample after this time.
const SCRAPE: i64 = 4 * MINUTE;

/// Returns a time in seconds. Day 0 is Monday, 2026-01-05.
const fn at(day: i64, hour: i64, minute: i64) -> i64 {
    1_767_571_200 + day * DAY + hour * HOUR + minute * MINUTE
}

const BEGIN: i64 = at(0, 0, 0);
const END: i64 = at(33, 0, 0);

const NEVER: Range<i64> = END..END;

/// What happens to one exporter.
struct Plan {
    instance: &'static str,
    /// Returns the events that were created since the scrape before: type, user, number.
    events: fn(i64) -> Vec<(&'static str, u32, u64)>,
    scan_interval: i64,
    down: Range<i64>,
    api_down: Range<i64>,
    /// The API rejects the key.
    rejected: Range<i64>,
    failed_scan: Range<i64>,
    collector_down: Range<i64>,
    behind: Range<i64>,
    dead_letters: Range<i64>,
    starts: &'static [i64],
    new_files: &'static [i64],
    gap: i64,
    /// Certificates of a day are renewed after 16 hours, but not in this time.
    no_renewal: Range<i64>,
}

/// Twenty users who work from 8 to 17 o'clock, an integration at night, and what is unusual.
fn busy_events(now: i64) -> Vec<(&'static str, u32, u64)> {
    let (day, second) = ((now - BEGIN) / DAY, (now - BEGIN) % DAY);
    let within = |from: i64, until: i64| (from..until).contains(&second);
    let (is_workday, is_work) = (day % 7 < 5, within(8 * HOUR, 17 * HOUR));
    let mut events = Vec::new();
    // A public holiday.
    if is_workday && is_work && day != 24 {
        for user in 1..=20 {
            events.push(("TASK_UPDATED", user, 1));
            if (second / SCRAPE + i64::from(user)) % 5 == 0 {
                events.push(("DOCUMENT_VIEWED", user, 1));
            }
        }
        if day >= 10 {
            events.push(("TASK_UPDATED", 24, 1));
        }
    }
    if within(0, 6 * HOUR) && second % HOUR < SCRAPE {
        events.push(("INTEGRATION_SYNCED", 0, 5));
    }
    if day % 7 == 5 && within(10 * HOUR, 12 * HOUR) {
        events.push(("TASK_UPDATED", 21, 1));
    }
    // Monthly work, in the evening.
    if [1, 32].contains(&day) && within(21 * HOUR, 21 * HOUR + 8 * MINUTE) {
        events.push(("REPORT_EXPORTED", 22, 30));
    }
    // A new user has 20,000 events in 40 minutes.
    if day == 15 && within(10 * HOUR, 10 * HOUR + 40 * MINUTE) {
        events.push(("DOCUMENT_VIEWED", 23, 2000));
    }
    if day == 17 && within(11 * HOUR, 11 * HOUR + SCRAPE) {
        events.push(("KEY_CREATED", 5, 1));
    }
    // At night, by somebody who was never there at night.
    if day == 22 && within(2 * HOUR, 2 * HOUR + 8 * MINUTE) {
        events.push(("REPORT_EXPORTED", 3, 35));
    }
    events
}

/// Two users with a few events a day.
fn quiet_events(now: i64) -> Vec<(&'static str, u32, u64)> {
    let (day, second) = ((now - BEGIN) / DAY, (now - BEGIN) % DAY);
    let is_time = day % 7 < 5 && [9, 11, 15].map(|hour| hour * HOUR).contains(&second);
    match is_time {
        true => vec![("DEAL_UPDATED", 1, 2), ("TASK_UPDATED", 2, 1)],
        false => Vec::new(),
    }
}

const PLANS: [Plan; 2] = [
    Plan {
        instance: "busy:1",
        events: busy_events,
        scan_interval: SCRAPE,
        down: at(9, 12, 0)..at(9, 16, 0),
        api_down: at(14, 10, 0)..at(14, 14, 0),
        rejected: at(16, 9, 0)..at(16, 9, 28),
        failed_scan: NEVER,
        collector_down: at(18, 12, 0)..at(18, 15, 0),
        behind: at(9, 16, 0)..at(9, 16, 20),
        dead_letters: NEVER,
        starts: &[at(3, 11, 0), at(11, 9, 12), at(23, 9, 4)],
        new_files: &[at(26, 12, 0)],
        gap: END,
        no_renewal: NEVER,
    },
    Plan {
        instance: "quiet:1",
        events: quiet_events,
        scan_interval: 15 * MINUTE,
        down: at(12, 20, 0)..at(14, 8, 0),
        api_down: NEVER,
        rejected: NEVER,
        failed_scan: at(8, 10, 0)..at(8, 10, 15),
        collector_down: NEVER,
        behind: at(25, 6, 0)..at(25, 9, 0),
        dead_letters: at(28, 8, 0)..at(29, 8, 0),
        starts: &[
            at(5, 1, 0),
            at(5, 1, 12),
            at(5, 1, 24),
            at(5, 1, 36),
            at(5, 1, 48),
        ],
        new_files: &[at(14, 8, 0)],
        gap: at(27, 10, 0),
        no_renewal: at(30, 1, 0)..at(30, 23, 0),
    },
];

/// What has to fire: alert, instance with other labels, and from when until when as day and time.
const PLANTED: &str = "
ExporterDown | busy:1 | 9 12:05 | 9 16:00
ExporterDown | quiet:1 | 12 20:05 | 14 08:00
ExporterDown | gone:1 | 31 12:10 | 31 18:00
ExporterRestarting | quiet:1 | 5 01:48 | 5 02:12
ExporterStateLost | busy:1 | 26 12:00 | 26 13:00
ExporterStateLost | quiet:1 | 14 08:00 | 14 09:00
ExporterLoopFailing | busy:1 audit | 14 10:15 | 14 14:00
ExporterLoopFailing | busy:1 audit | 16 09:15 | 16 09:28
ExporterLoopFailing | busy:1 otlp | 18 12:15 | 18 15:00
ExporterKeyRefused | busy:1 audit | 16 09:05 | 16 09:28
ExporterKeyRefused | busy:1 tickets | 16 09:20 | 16 09:28
ExporterTicketSnapshotAbsent | busy:1 | 14 10:30 | 14 14:00
ExporterTrailBehind | busy:1 | 14 11:05 | 14 14:00
ExporterTrailBehind | busy:1 | 18 13:05 | 18 15:00
ExporterTrailBehind | quiet:1 | 25 07:05 | 25 09:00
ExporterDeliveryDelayed | busy:1 | 18 12:20 | 18 15:00
ExporterBehind | quiet:1 | 25 07:05 | 25 09:00
ExporterAuditGap | quiet:1 | 27 10:00 | 27 11:00
ExporterDeadLetters | quiet:1 | 28 08:15 | 29 08:00
ExporterCertificateEnds | quiet:1 web | 30 17:48 | 30 23:00
DetectionSensitiveActivity | busy:1 22 | 1 21:10 | 1 22:00
DetectionNewActor | busy:1 24 | 10 08:10 | 10 09:00
DetectionNewActor | busy:1 23 | 15 10:10 | 15 11:00
DetectionActorFarAboveUsual | busy:1 23 | 15 10:10 | 15 11:10
DetectionNewActivityType | busy:1 KEY_CREATED | 17 11:10 | 17 12:00
DetectionSensitiveActivity | busy:1 3 | 22 02:10 | 22 03:00
DetectionActorFarAboveUsual | busy:1 3 | 22 02:10 | 22 03:00
DetectionUnusualHours | busy:1 3 | 22 02:10 | 22 03:00
DetectionNoActivity | busy:1 | 24 17:00 | 24 18:00";

/// An alert with its labels, and from when until when it fires.
#[derive(Debug)]
struct Firing {
    alert: String,
    labels: String,
    time: Range<i64>,
}

/// Samples in OpenMetrics.
#[derive(Default)]
struct Samples(String);

impl Samples {
    fn push(&mut self, name: &str, labels: &str, value: impl Display, at: i64) {
        writeln!(self.0, "{name}{{{labels}}} {value} {at}").unwrap();
    }

    /// Gives a server these samples.
    async fn store(mut self, server: &mut Prometheus, promtool: &str) {
        self.0 += "# EOF\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, self.0).unwrap();
        let data = server.data().display().to_string();
        let create = "tsdb create-blocks-from --max-block-duration=1458h openmetrics";
        let files = [file.path().to_str().unwrap(), &data];
        let create: Vec<_> = create.split(' ').chain(files).collect();
        run(promtool, &create, "").unwrap();
        server.restart().await;
    }
}

impl Plan {
    /// Writes what is scraped.
    fn write(&self, samples: &mut Samples) {
        let mut counters: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        let mut unread: Vec<(&str, u32, u64)> = Vec::new();
        let (mut started, mut created, mut is_new) = (BEGIN - DAY, BEGIN - DAY, false);
        let [mut read, mut delivered, mut scanned] = [BEGIN; 3];
        let mut certificate = BEGIN;
        for now in (BEGIN..END).step_by(SCRAPE as usize) {
            let is_one =
                |times: &[i64]| times.iter().any(|at| (now - SCRAPE + 1..=now).contains(at));
            unread.extend((self.events)(now));
            let labels = |more: &str| {
                format!(
                    "{more}job=\"orgdata-exporter\",instance=\"{}\"",
                    self.instance
                )
            };
            if now - certificate >= 16 * HOUR && !self.no_renewal.contains(&now) {
                certificate = now;
            }
            let is_now = |time: &Range<i64>| time.contains(&now);
            let is_down = is_now(&self.down);
            samples.push("up", &labels(""), u8::from(!is_down), now);
            if is_down {
                is_new = true;
                continue;
            }
            if is_one(self.new_files) {
                // What was not read yet is known to the first sync.
                (created, is_new) = (now, true);
                counters.clear();
                unread.clear();
            }
            if is_new || is_one(self.starts) {
                started = now;
            }
            let can_read = !is_now(&self.api_down) && !is_now(&self.rejected);
            let is_behind = is_now(&self.behind);
            let is_sending = !is_now(&self.collector_down);
            if can_read {
                read = if is_behind { self.behind.start } else { now };
                // The first scrape shows the value before.
                if !std::mem::take(&mut is_new) {
                    unread.retain(|&(kind, user, number)| {
                        let counter = counters.get_mut(&(kind, user));
                        let is_new = counter.is_none();
                        counter.into_iter().for_each(|it| *it += number);
                        is_new
                    });
                    for &(kind, user, _) in &unread {
                        counters.insert((kind, user), 0);
                    }
                }
            }
            if is_sending {
                delivered = read;
            }
            let scans = can_read && !is_now(&self.failed_scan);
            if scans && now - scanned >= self.scan_interval {
                scanned = now;
            }

            let mut show = |name: &str, more: &str, value: i64| {
                samples.push(&format!("orgdata_{name}"), &labels(more), value, now);
            };
            for ((kind, user), value) in &counters {
                let actor = match user {
                    0 => "none".to_owned(),
                    user => user.to_string(),
                };
                let more = format!("activity_type=\"{kind}\",actor=\"{actor}\",");
                show("audit_events_total", &more, *value as i64);
            }
            for (name, works) in [
                ("audit", can_read),
                ("tickets", scans),
                ("otlp", is_sending),
            ] {
                show("up", &format!("loop=\"{name}\","), i64::from(works));
                let reason = match is_now(&self.rejected) {
                    true => "unauthorized",
                    false => "timeout",
                };
                if !works {
                    let more = format!("loop=\"{name}\",reason=\"{reason}\",");
                    show("last_failure_info", &more, 1);
                }
            }
            let organization = format!(
                "organization_id=\"{0}\",organization_name=\"{0}\",api=\"api\",",
                self.instance
            );
            show("organization_info", &organization, 1);
            show("exporter_build_info", "version=\"0.1.0\",", 1);
            show("state_created_timestamp_seconds", "", created);
            show("state_size_bytes", "", 1_000_000);
            show("state_max_size_bytes", "", 268_435_456);
            show("audit_complete_through_timestamp_seconds", "", read);
            show("otlp_delivered_through_timestamp_seconds", "", delivered);
            show("otlp_backlog_records", "", i64::from(!is_sending));
            if !is_sending {
                let since = self.collector_down.start;
                show("otlp_oldest_unsent_timestamp_seconds", "", since);
            }
            if is_behind {
                let since = self.behind.start;
                show("audit_behind_since_timestamp_seconds", "", since);
            }
            show("audit_gaps_total", "", i64::from(now > self.gap));
            let letters = i64::from(is_now(&self.dead_letters));
            show("dead_letters_stored", "", 3 * letters);
            show("tickets_snapshot_timestamp_seconds", "", scanned);
            if now - scanned < (2 * self.scan_interval).max(15 * MINUTE) {
                show("tickets_snapshot_consistent", "", 1);
                show("tickets_malformed", "", 0);
            }
            let web = "used_for=\"web\",";
            show("certificate_not_before_timestamp_seconds", web, certificate);
            show(
                "certificate_not_after_timestamp_seconds",
                web,
                certificate + DAY,
            );
            for name in "api_throttled_seconds audit_entries_malformed audit_events_other_actor dead_letters_evicted state_commit_failures".split(' ') {
                show(&format!("{name}_total"), "", 0);
            }
            show("audit_paused", "", 0);
            samples.push("process_start_time_seconds", &labels(""), started, now);
        }
    }
}

/// The labels of a series.
type Metric = BTreeMap<String, String>;

/// Evaluates the expression of a rule at each step, and returns each series with its times and values.
async fn evaluate(
    server: &Prometheus,
    rule: &Value,
    step: i64,
) -> BTreeMap<Metric, Vec<(i64, f64)>> {
    let mut series: BTreeMap<Metric, Vec<(i64, f64)>> = BTreeMap::new();
    // Prometheus answers with at most 11,000 values of a series.
    for begin in (BEGIN..END).step_by(10_000 * step as usize) {
        let end = (begin + 9_999 * step).min(END);
        let [begin, end, step] = [begin, end, step].map(|it| it.to_string());
        let query = text(&rule["expr"]);
        let parameters = [
            ("query", &*query),
            ("start", &begin),
            ("end", &end),
            ("step", &step),
        ];
        let answer = server.api("query_range", &parameters).await;
        for one in array(&answer["result"]) {
            let metric = serde_json::from_value(one["metric"].clone()).unwrap();
            let values = array(&one["values"]).iter();
            let values = values.map(|it| (it[0].as_f64().unwrap() as i64, number(&it[1])));
            series.entry(metric).or_default().extend(values);
        }
    }
    series
}

/// Returns from when until when an alert fires that needs this patience.
fn firing(values: &[(i64, f64)], step: i64, patience: i64) -> Vec<Range<i64>> {
    let mut times: Vec<Range<i64>> = Vec::new();
    for (at, _) in values {
        match times.last_mut() {
            Some(last) if *at <= last.end => last.end = at + step,
            _ => times.push(*at..at + step),
        }
    }
    times.retain_mut(|time| {
        time.start += patience;
        time.start < time.end
    });
    times
}

/// Returns the seconds of a duration such as 15m.
fn seconds(duration: &Value) -> i64 {
    let Some(text) = duration.as_str() else {
        return 0;
    };
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "m" => MINUTE,
        "h" => HOUR,
        _ => panic!("{text}"),
    };
    number.parse::<i64>().unwrap() * unit
}

/// Evaluates the rules of a file, and returns what fires.
async fn fired(server: &mut Prometheus, promtool: &str, file: &str, step: i64) -> Vec<Firing> {
    let mut fired = Vec::new();
    for rule in array(&yaml(file)["groups"][0]["rules"]) {
        let series = evaluate(server, rule, step).await;
        if let Some(name) = rule["record"].as_str() {
            let mut samples = Samples::default();
            for (metric, values) in series {
                let labels = metric.iter().filter(|(label, _)| *label != "__name__");
                let labels = labels.map(|(label, value)| format!("{label}={value:?}"));
                let labels = labels.collect::<Vec<_>>().join(",");
                for (at, value) in values {
                    samples.push(name, &labels, value, at);
                }
            }
            samples.store(server, promtool).await;
            continue;
        }
        for (metric, values) in series {
            let labels = "instance actor activity_type loop used_for".split(' ');
            let labels: Vec<_> = labels.filter_map(|it| metric.get(it).cloned()).collect();
            let times = firing(&values, step, seconds(&rule["for"]));
            fired.extend(times.into_iter().map(|time| Firing {
                alert: text(&rule["alert"]).replace("Orgdata", ""),
                labels: labels.join(" "),
                time,
            }));
        }
    }
    fired
}

// === impl Firing ===

impl Firing {
    /// Parses a line of [`PLANTED`].
    fn parse(line: &str) -> Self {
        let [alert, labels, begin, end] = *line.split(" | ").collect::<Vec<_>>() else {
            panic!("{line}");
        };
        let [begin, end] = [begin, end].map(|moment| {
            let numbers = moment.split([' ', ':']).map(|it| it.parse().unwrap());
            let [day, hour, minute] = *numbers.collect::<Vec<_>>() else {
                panic!("{line}");
            };
            at(day, hour, minute)
        });
        Self {
            alert: alert.to_owned(),
            labels: labels.to_owned(),
            time: begin..end,
        }
    }

    /// Whether it is the other one, at about the same time.
    fn is(&self, other: &Self) -> bool {
        let is_near = |one: i64, other: i64| (one - other).abs() <= 12 * MINUTE;
        self.alert == other.alert
            && self.labels == other.labels
            && is_near(self.time.start, other.time.start)
            && is_near(self.time.end, other.time.end)
    }
}

/// As a line of [`PLANTED`].
impl Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.alert, self.labels)?;
        for at in [self.time.start, self.time.end] {
            let (minute, day) = ((at - BEGIN) / MINUTE % 1440, (at - BEGIN) / DAY);
            write!(f, " | {day} {:02}:{:02}", minute / 60, minute % 60)?;
        }
        Ok(())
    }
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3 with their promtools"]
async fn a_month_fires_what_was_planted_and_nothing_else() {
    let planted: Vec<_> = PLANTED.trim().lines().map(Firing::parse).collect();
    for (program, promtool) in [("prometheus", "promtool"), ("prometheus3", "promtool3")] {
        let mut samples = Samples::default();
        PLANS.iter().for_each(|plan| plan.write(&mut samples));
        // A target that vanishes.
        for now in (BEGIN..at(31, 12, 0)).step_by(SCRAPE as usize) {
            let labels = "job=\"orgdata-exporter\",instance=\"gone:1\"";
            samples.push("up", labels, 1, now);
        }
        let mut server = Prometheus::start(program, &[], "1m").await;
        samples.store(&mut server, promtool).await;
        let mut unexpected = Vec::new();
        let mut missing: Vec<_> = planted.iter().collect();
        for (file, step) in [("alerts", MINUTE), ("detections", 10 * MINUTE)] {
            let file = format!("dashboards/{file}.yaml");
            for one in fired(&mut server, promtool, &file, step).await {
                match missing.iter().position(|it| it.is(&one)) {
                    Some(place) => drop(missing.remove(place)),
                    None => unexpected.push(one.to_string()),
                }
            }
        }
        let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
        assert_eq!((unexpected, missing), (vec![], vec![]), "{program}");
    }
}
