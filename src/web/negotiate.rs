//! Which format a client asks for in `Accept`, and whether it accepts gzip (RFC 9110, section 12).

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, AsHeaderName};

use crate::metrics::exposition::Format;

const OPENMETRICS: &str = "application/openmetrics-text";

const TEXT: &str = "text/plain";

/// One element of a header.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
    quality: u16,
}

/// Returns the format for a request: OpenMetrics for clients that name it and do not prefer the
/// classic text format, which people and all scrapers can read.
pub fn format(headers: &HeaderMap) -> Format {
    let ranges = ranges(headers, ACCEPT);
    let quality = |name: &str, versions: &[&str]| {
        let fits = |range: &&Range<'_>| {
            let version = range
                .version
                .is_none_or(|version| versions.contains(&version));
            range.name.eq_ignore_ascii_case(name) && version
        };
        let fitting = ranges.iter().filter(fits).map(|range| range.quality);
        fitting.max().unwrap_or(0)
    };
    // Every parser of 1.0 can read 0.0.1.
    let openmetrics = quality(OPENMETRICS, &["1.0.0", "0.0.1"]);
    match openmetrics > 0 && openmetrics >= quality(TEXT, &["0.0.4"]) {
        true => Format::OpenMetrics,
        false => Format::Text,
    }
}

/// Returns whether the client accepts gzip and does not prefer the plain form.
pub fn gzip(headers: &HeaderMap) -> bool {
    let ranges = ranges(headers, ACCEPT_ENCODING);
    let quality = |names: &[&str]| {
        let fits = |name: &&str| names.iter().any(|other| name.eq_ignore_ascii_case(other));
        let fitting = ranges.iter().filter(|range| fits(&range.name));
        fitting.map(|range| range.quality).max()
    };
    let gzip = quality(&["gzip", "x-gzip"]).or(quality(&["*"]));
    gzip.is_some_and(|gzip| gzip > 0 && gzip >= quality(&["identity"]).unwrap_or(0))
}

/// Returns whether the client is a scraper: it names a format of metrics, or sends the header that
/// Prometheus and its relatives send with every scrape.
pub fn is_scraper(headers: &HeaderMap) -> bool {
    let metrics = |range: &Range<'_>| {
        let named = |name| range.name.eq_ignore_ascii_case(name);
        let text = named(TEXT) && range.version == Some("0.0.4");
        named(OPENMETRICS) || named("application/vnd.google.protobuf") || text
    };
    headers.contains_key("x-prometheus-scrape-timeout-seconds")
        || ranges(headers, ACCEPT).iter().any(metrics)
}

/// Splits a header; an element that is invalid is ignored.
fn ranges(headers: &HeaderMap, name: impl AsHeaderName) -> Vec<Range<'_>> {
    let values = headers.get_all(name).into_iter();
    let elements = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    elements.filter_map(range).collect()
}

fn range(element: &str) -> Option<Range<'_>> {
    let mut parts = element.split(';').map(str::trim);
    let mut range = Range {
        name: parts.next().filter(|name| !name.is_empty())?,
        version: None,
        quality: 1000,
    };
    for parameter in parts {
        let Some((key, value)) = parameter.split_once('=') else {
            continue;
        };
        match key.trim().to_ascii_lowercase().as_str() {
            "q" => {
                let digits = value.trim();
                let plain = digits
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.');
                let quality = digits.parse::<f64>().ok().filter(|_| plain)?;
                // Whole thousandths, which can be compared.
                range.quality = (quality.min(1.0) * 1000.0).round() as u16;
            }
            "version" => range.version = Some(value.trim().trim_matches('"')),
            _ => {}
        }
    }
    Some(range)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let values = values
            .iter()
            .map(|value| HeaderValue::from_bytes(value.as_bytes()).unwrap());
        values.map(|value| (name.parse().unwrap(), value)).collect()
    }

    #[test]
    fn the_format_follows_accept() {
        for (accept, openmetrics) in [
            // Prometheus 2.42, 3.5, and with native histograms.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4",
                true,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            // VictoriaMetrics, and a browser.
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", false),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
                false,
            ),
            ("", false),
            ("*/*", false),
            ("*/*;q=0.1", false),
            ("text/*, */*;q=0.9", false),
            (
                "text/plain;q=0.5, application/openmetrics-text;q=0.51",
                true,
            ),
            (
                "application/openmetrics-text;q=0.5, text/plain;q=0.501",
                false,
            ),
            ("text/plain, application/openmetrics-text", true),
            ("*/*, application/openmetrics-text", true),
            ("application/openmetrics-text; version=0.0.1", true),
            ("application/openmetrics-text;version=2.0.0", false),
            (
                "text/plain;version=1.0.0, application/openmetrics-text;version=1.0.0;q=0.1",
                true,
            ),
            ("application/openmetrics-text;version=\"1.0.0\"", true),
            (
                "Application/OpenMetrics-Text; Version=1.0.0; Q=0.9, text/plain; q=0.8",
                true,
            ),
            ("application/openmetrics-text;q=0, */*", false),
            ("text/plain;q=0, application/openmetrics-text;q=0.1", true),
            ("application/openmetrics-text;q=0.1, */*;q=0.9", true),
            ("*/*;q=0", false),
            ("application/openmetrics-text;q=7, text/plain;q=0.9", true),
            ("application/openmetrics-text;q=NaN", false),
            ("application/openmetrics-text;q=-1", false),
            ("application/openmetrics-text;q=1e3", false),
            ("application/openmetrics-text;q=", false),
        ] {
            let chosen = format(&headers("accept", &[accept]));
            assert_eq!(chosen == Format::OpenMetrics, openmetrics, "{accept}");
        }
        assert_eq!(format(&HeaderMap::new()), Format::Text);
        let two = headers(
            "accept",
            &["text/plain;q=0.5", "application/openmetrics-text"],
        );
        assert_eq!(format(&two), Format::OpenMetrics);
    }

    #[test]
    fn gzip_follows_accept_encoding() {
        for (accepted, gzipped) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5, br", true),
            ("GZIP", true),
            ("*", true),
            ("*;q=0", false),
            ("", false),
            ("br, zstd", false),
            ("gzip;q=0, *", false),
            ("identity, gzip;q=0.5", false),
            ("gzip, identity;q=0.5", true),
        ] {
            assert_eq!(
                gzip(&headers("accept-encoding", &[accepted])),
                gzipped,
                "{accepted}"
            );
        }
        assert!(!gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_scraper_names_a_format_of_metrics_or_its_timeout() {
        for (name, value, scraper) in [
            ("accept", "text/plain;version=0.0.4;q=0.5", true),
            ("accept", "*/*;q=0.1, Application/OpenMetrics-Text", true),
            ("x-prometheus-scrape-timeout-seconds", "10", true),
            ("accept", "text/html, text/plain, */*", false),
        ] {
            assert_eq!(is_scraper(&headers(name, &[value])), scraper, "{value}");
        }
    }

    proptest! {

        #[test]
        fn any_header_gets_a_format(value in "[ -~\u{80}-\u{ff}]{0,60}|([a-z*]{0,3}/?[*;=q,.0-9]{0,9}){0,9}") {
            let headers = headers("accept", &[value.as_str()]);
            format(&headers);
            gzip(&headers);
            is_scraper(&headers);
        }
    }
}
