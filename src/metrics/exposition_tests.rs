use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::{CounterWithExemplar, HistogramWithExemplars};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::*;

type Labels = Vec<(String, String)>;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// One family of each kind. Families with labels hold one series each: their order in a scrape is not fixed.
fn registry() -> Registry {
    let mut registry = Registry::default();

    let events = Family::<Labels, Counter>::default();
    events
        .get_or_create(&labels(&[
            ("activity_type", "DEAL_UPDATED"),
            ("actor", "42"),
        ]))
        .inc_by(7);
    registry.register("example_events", "Events counted", events);

    let seconds = Counter::<f64, std::sync::atomic::AtomicU64>::default();
    seconds.inc_by(1.5);
    registry.register_with_unit("example_waited", "Time waited", Unit::Seconds, seconds);

    let traced = CounterWithExemplar::<Labels>::default();
    traced.inc_by(3, Some(labels(&[("trace_id", "0af7651916cd43dd")])), None);
    registry.register("example_traced", "Counted with an exemplar", traced);

    let backlog = Gauge::<i64>::default();
    backlog.set(-2);
    registry.register("example_backlog", "What waits # not an exemplar", backlog);

    let delay = Histogram::new([0.5, 2.0]);
    delay.observe(0.25);
    delay.observe(10.0);
    registry.register("example_delay_seconds", "Time it took", delay);

    let traced_delay = HistogramWithExemplars::<Labels>::new([1.0].into_iter());
    traced_delay.observe(0.5, Some(labels(&[("trace_id", "b7ad6b7169203331")])), None);
    registry.register(
        "example_traced_delay_seconds",
        "Time it took, with an exemplar",
        traced_delay,
    );

    let odd = Family::<Labels, Gauge>::default();
    odd.get_or_create(&labels(&[(
        "value",
        "quote \" backslash \\ newline \n braces } # {a=\"b\"} 1\u{e9}",
    )]))
    .set(1);
    registry.register(
        "example_odd",
        "A label value with everything that has to be escaped",
        odd,
    );
    registry
}

fn text(openmetrics: &str) -> String {
    classic(openmetrics)
}

#[test]
fn a_whole_scrape_in_openmetrics() {
    golden(
        "openmetrics.txt",
        &Format::OpenMetrics.encode(&registry()).unwrap(),
    );
}

#[test]
fn a_whole_scrape_in_the_classic_form() {
    golden("text.txt", &Format::Text.encode(&registry()).unwrap());
}

/// Compares with `tests/golden/NAME`; `UPDATE_GOLDEN=1` writes it instead.
fn golden(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    assert_eq!(
        actual,
        std::fs::read_to_string(&path).unwrap(),
        "{} differs",
        path.display()
    );
}

#[test]
fn a_counter_family_is_named_as_its_samples() {
    let openmetrics = "# HELP a_b Help.\n# TYPE a_b counter\na_b_total{x=\"1\"} 5\n# EOF\n";
    assert_eq!(
        text(openmetrics),
        "# HELP a_b_total Help.\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 5\n"
    );
}

#[test]
fn help_without_text_is_kept() {
    assert_eq!(
        text("# HELP a \n# TYPE a gauge\na 1\n"),
        "# HELP a \n# TYPE a gauge\na 1\n"
    );
}

#[test]
fn help_keeps_quotes_and_escapes_backslashes() {
    assert_eq!(
        text("# HELP a say \"C:\\x\" # now\n# TYPE a gauge\n"),
        "# HELP a say \"C:\\\\x\" # now\n# TYPE a gauge\n"
    );
}

#[test]
fn an_exemplar_is_removed_and_the_rest_of_the_samples_stays() {
    let exemplar = " # {trace_id=\"0c\",span_id=\"y\"} 1.0 1700000000.5";
    let odd = "b_total{x=\"y\\\"} 1 # {trace_id=\\\"\",w=\"\\\\\"} 1";
    let ends_alike = "c{name=\"Eve # {trace_id=\",x=\"# {trace_id=\"} 1";
    for sample in ["a_total 1", "a_bucket{le=\"1.0\"} 4", odd, ends_alike] {
        let openmetrics =
            format!("b 2\n{sample}{exemplar}\n# HELP e x\n# TYPE e gauge\ne 5\n{sample}\n");
        let expected = format!("b 2\n{sample}\n# HELP e x\n# TYPE e gauge\ne 5\n{sample}\n");
        assert_eq!(text(&openmetrics), expected);
    }
}

#[test]
fn a_text_cut_anywhere_does_not_panic() {
    let whole = Format::OpenMetrics.encode(&registry()).unwrap();
    for (end, _) in whole.char_indices() {
        text(&whole[..end]);
    }
}

#[test]
fn an_empty_registry_is_a_valid_scrape() {
    assert_eq!(
        Format::OpenMetrics.encode(&Registry::default()).unwrap(),
        "# EOF\n"
    );
    assert_eq!(Format::Text.encode(&Registry::default()).unwrap(), "");
}

/// `prometheus-client` writes HELP as it is, and OpenMetrics wants quotes and backslashes escaped in it: so there are none.
#[test]
fn the_help_of_every_family_is_one_plain_sentence() {
    let metrics = crate::metrics::Metrics::new(std::time::Duration::ZERO);
    let scrape = Format::OpenMetrics.encode(metrics.registry()).unwrap();
    let helps: Vec<_> = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP "))
        .collect();
    assert!(helps.len() > 20);
    for help in helps {
        assert!(!help.contains(['"', '\\']), "to be escaped: {help}");
        assert!(!help.ends_with(".."), "two full stops: {help}");
    }
}

#[test]
fn no_family_is_registered_twice_or_with_the_suffix_of_its_samples() {
    let metrics = crate::metrics::Metrics::new(std::time::Duration::ZERO);
    let scrape = Format::Text.encode(metrics.registry()).unwrap();
    let mut names: Vec<_> = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a family is there twice");
    assert!(
        !names.iter().any(|name| name.ends_with("_total_total")),
        "{names:?}"
    );
}
