//! `METRICS.md`: every metric that the program can show, with the words of its own `# HELP`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::metrics::audit::{Delta, EventLabels, RangeKind};
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::tickets::{Aggregate, Settings};

/// Labels whose values are known beforehand.
const BOUNDED: [&str; 6] = ["endpoint", "kind", "loop", "min_age", "reason", "used_for"];

/// A family of metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    /// With the values that have been seen.
    pub(crate) labels: BTreeMap<String, BTreeSet<String>>,
}

/// Every family, by name.
pub(crate) fn families() -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let metrics = everything();
    read(
        &Format::Text.encode(metrics.registry(), 0).expect("encodes"),
        &mut families,
    );
    families
}

/// Metrics that show everything that they ever show.
fn everything() -> Metrics {
    let metrics = Metrics::new(Duration::ZERO);
    let now = Timestamp::now();
    Loop::ALL
        .into_iter()
        .for_each(|which| metrics.loops.enable(which));
    let event = EventLabels {
        activity_type: "TASK_CREATED".into(),
        actor: Some("1".into()),
    };
    metrics.audit.publish(Delta {
        events: vec![(event, 1)],
        names: vec![("1".into(), "Ada".to_owned())],
        newest: Some(now),
        ..Delta::default()
    });
    for kind in RangeKind::ALL {
        metrics.audit.open_ranges(kind, 1, Some(now));
    }
    metrics.audit.organization("1", "Example");
    metrics.otlp.backlog(1, Some(now));
    metrics.certificates.set(vec![
        ("web", Box::new(move || Some(now))),
        ("otlp", Box::new(move || Some(now))),
    ]);
    let settings = Settings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: vec!["BLOCKER".to_owned()],
        page_size: 1000,
    };
    let mut aggregate = Aggregate::new(&settings, None, now, 1);
    aggregate.add(r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-01-01T00:00:00Z","dealAmountSum":1,"linkedDeals":[{"id":1,"priority":"BLOCKER"}]}"#);
    metrics.tickets.publish(
        std::sync::Arc::new(aggregate.finish(Duration::ZERO, None)),
        Duration::from_secs(900),
    );
    metrics
}

fn read(exposition: &str, families: &mut BTreeMap<String, Family>) {
    let mut name = "";
    for line in exposition.lines() {
        if let Some((of, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|line| line.split_once(' '))
        {
            families.entry(of.to_owned()).or_default().help = help.to_owned();
        } else if let Some((of, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        {
            name = of;
            families.entry(of.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((labels, _)) = line
            .split_once('{')
            .and_then(|(_, labels)| labels.rsplit_once('}'))
        {
            let family = families.get_mut(name).expect("a sample has a type");
            for pair in labels.split(',').filter(|pair| !pair.starts_with("le=")) {
                let (label, value) = pair.split_once('=').expect("a label has a value");
                family
                    .labels
                    .entry(label.to_owned())
                    .or_default()
                    .insert(value.trim_matches('"').to_owned());
            }
        }
    }
}

/// The page.
pub(crate) fn page(families: &BTreeMap<String, Family>) -> String {
    let mut page = "# Metrics\n\n\
        Every metric of the exporter, with the words of its own `# HELP`. Generated from the code: `UPDATE=1 cargo test --test dashboards`\n\
        writes it anew, and without the variable the test fails where it is out of date.\n\n\
        | metric | kind | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for (name, family) in families {
        let labels: Vec<String> = family
            .labels
            .keys()
            .map(|label| format!("`{label}`"))
            .collect();
        writeln!(
            page,
            "| `{name}` | {} | {} | {} |",
            family.kind,
            labels.join(", "),
            family.help.replace('|', "\\|")
        )
        .expect("a string takes text");
    }
    page.push_str("\n## Values of labels\n\nOther labels have values of the organization: activity types, actors, states, ticket types, priorities.\n\n| metric | label | values |\n|---|---|---|\n");
    for (name, family) in families {
        for (label, values) in family
            .labels
            .iter()
            .filter(|(label, _)| BOUNDED.contains(&label.as_str()))
        {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            writeln!(page, "| `{name}` | `{label}` | {} |", values.join(", "))
                .expect("a string takes text");
        }
    }
    page
}
