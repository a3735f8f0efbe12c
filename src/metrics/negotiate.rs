//! Which format a client asks for in `Accept` (RFC 9110, section 12.5.1), and whether it is a scraper.

use http::HeaderMap;
use http::header::ACCEPT;

use super::exposition::Format;

const OPENMETRICS: &str = "application/openmetrics-text";

const TEXT: &str = "text/plain";

/// One element of the header: its name, its version, and how much it is wanted, from 0 to 1.
type Range = (String, Option<String>, f64);

/// Returns the format for a request: OpenMetrics for clients that name it and do not prefer the
/// classic text format, which people and all scrapers can read.
pub fn format(headers: &HeaderMap) -> Format {
    let ranges = ranges(headers);
    let quality = |wanted: &str, versions: &[&str]| {
        let fits = |(name, version, _): &&Range| {
            let version = version.as_deref();
            name == wanted && version.is_none_or(|version| versions.contains(&version))
        };
        let fitting = ranges.iter().filter(fits).map(|(.., quality)| *quality);
        fitting.fold(0.0, f64::max)
    };
    // Every parser of 1.0 can read 0.0.1.
    let openmetrics = quality(OPENMETRICS, &["1.0.0", "0.0.1"]);
    match openmetrics > 0.0 && openmetrics >= quality(TEXT, &["0.0.4"]) {
        true => Format::OpenMetrics,
        false => Format::Text,
    }
}

/// Returns whether the client is a scraper: it names a format of metrics, or has the header that Prometheus and its
/// relatives send with every scrape. Browsers name HTML too, and `curl` and most scripts accept `*/*`.
pub fn is_scraper(headers: &HeaderMap) -> bool {
    let ranges = ranges(headers);
    let names = |wanted| ranges.iter().any(|(name, ..)| name == wanted);
    headers.contains_key("x-prometheus-scrape-timeout-seconds")
        || names(OPENMETRICS)
        || names("application/vnd.google.protobuf")
        || names(TEXT) && !names("text/html")
}

/// Splits the header; an element that is invalid is ignored.
fn ranges(headers: &HeaderMap) -> Vec<Range> {
    let values = headers.get_all(ACCEPT).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let elements = values.flat_map(|value| value.split(','));
    elements.filter_map(range).collect()
}

fn range(element: &str) -> Option<Range> {
    let element = element.to_ascii_lowercase();
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let (mut version, mut quality) = (None, 1.0);
    for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        match (key.trim(), value.trim()) {
            ("q", value) => quality = value.parse().ok()?,
            ("version", value) => version = Some(value.trim_matches('"').to_owned()),
            _ => {}
        }
    }
    let is_valid = (0.0..=1.0).contains(&quality);
    is_valid.then(|| (name.to_owned(), version, quality))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let value = |value: &&str| HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let values = values.iter().map(value);
        values.map(|value| (ACCEPT, value)).collect()
    }

    #[test]
    fn the_format_follows_accept() {
        let (open, text) = (Format::OpenMetrics, Format::Text);
        for (accept, format) in [
            // Prometheus 2.42, 3.5, and with native histograms.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4",
                open,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open,
            ),
            // VictoriaMetrics, and a browser.
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", text),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
                text,
            ),
            ("", text),
            ("*/*", text),
            (
                "text/plain;q=0.5, application/openmetrics-text;q=0.51",
                open,
            ),
            (
                "application/openmetrics-text;q=0.5, text/plain;q=0.501",
                text,
            ),
            ("text/plain, application/openmetrics-text", open),
            ("application/openmetrics-text; version=0.0.1", open),
            ("application/openmetrics-text;version=2.0.0", text),
            ("application/openmetrics-text;version=\"1.0.0\"", open),
            (
                "Application/OpenMetrics-Text; Version=1.0.0; Q=0.9, text/plain; q=0.8",
                open,
            ),
            ("application/openmetrics-text;q=0, */*", text),
            ("application/openmetrics-text;q=NaN", text),
            ("application/openmetrics-text;q=-1", text),
            ("application/openmetrics-text;q=", text),
        ] {
            assert_eq!(super::format(&headers(&[accept])), format, "{accept}");
        }
        assert_eq!(super::format(&HeaderMap::new()), text);
        let two = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(super::format(&headers(&two)), open);
    }

    #[test]
    fn a_scraper_names_a_format_of_metrics() {
        for (value, scraper) in [
            ("text/plain;version=0.0.4;q=0.5", true),
            ("*/*;q=0.1, Application/OpenMetrics-Text", true),
            // Datadog and Vector.
            ("text/plain", true),
            ("text/html, text/plain, */*", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(is_scraper(&headers(&[value])), scraper, "{value}");
        }
        let mut headers = headers(&["*/*"]);
        headers.insert("x-prometheus-scrape-timeout-seconds", 10.into());
        assert!(is_scraper(&headers));
        assert!(!is_scraper(&HeaderMap::new()));
    }
}
