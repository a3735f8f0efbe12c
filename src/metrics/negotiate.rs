//! Which format and encoding a client asks for (RFC 9110, sections 12.5.1 and 12.5.3), and whether it is a scraper.

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderName};
use mime::Mime;

use super::exposition::Format;

const OPENMETRICS: &str = "application/openmetrics-text";

const TEXT: &str = "text/plain";

/// Returns the format for a request: OpenMetrics for clients that name it and do not prefer the
/// classic text format, which people and all scrapers can read.
pub fn format(headers: &HeaderMap) -> Format {
    let quality = |wanted: &str, versions: &[&str]| {
        let fits = |(range, _): &(Mime, f64)| {
            let version = range.get_param("version");
            range.essence_str() == wanted
                && version.is_none_or(|it| versions.contains(&it.as_str()))
        };
        let qualities = ranges(headers).filter(fits).map(|(_, quality)| quality);
        qualities.fold(0.0, f64::max)
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
    let names = |wanted| ranges(headers).any(|(range, _)| range.essence_str() == wanted);
    headers.contains_key("x-prometheus-scrape-timeout-seconds")
        || names(OPENMETRICS)
        || names("application/vnd.google.protobuf")
        || names(TEXT) && !names("text/html")
}

/// Returns whether the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    elements(headers, ACCEPT_ENCODING).any(|element| {
        let (coding, weight) = element.split_once(';').unwrap_or((element, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        coding.trim().eq_ignore_ascii_case("gzip") && weight.parse() != Ok(0.0)
    })
}

/// Returns the elements of `Accept` and how much each is wanted, from 0 to 1; one that is invalid is ignored.
fn ranges(headers: &HeaderMap) -> impl Iterator<Item = (Mime, f64)> {
    elements(headers, ACCEPT).filter_map(|element| {
        let range: Mime = element.trim().parse().ok()?;
        let quality = range.get_param("q").map(|quality| quality.as_str().parse());
        let quality: f64 = quality.unwrap_or(Ok(1.0)).ok()?;
        (0.0..=1.0).contains(&quality).then_some((range, quality))
    })
}

/// Returns the elements of a header that is a list.
fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(','))
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

    /// Of Prometheus 2.42, 3.5, and with native histograms; of VictoriaMetrics and a browser; and others.
    const ACCEPT_HEADERS: &str = "
application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1 => OpenMetrics
application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4 => OpenMetrics
application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1 => OpenMetrics
text/plain;version=0.0.4;q=1,*/*;q=0.1 => Text
text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8 => Text
 => Text
application/openmetrics-text;q=0.5, text/plain;q=0.501 => Text
application/openmetrics-text;version=2.0.0 => Text
application/openmetrics-text;q=0, */* => Text
";

    #[test]
    fn the_format_follows_accept() {
        for line in ACCEPT_HEADERS.lines().skip(1) {
            let (accept, expected) = line.split_once(" => ").expect(line);
            let format = super::format(&headers(&[accept]));
            assert_eq!(format!("{format:?}"), expected, "{accept}");
        }
        assert_eq!(super::format(&HeaderMap::new()), Format::Text);
        let two = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(super::format(&headers(&two)), Format::OpenMetrics);
    }

    #[test]
    fn gzip_is_accepted_by_its_name_and_not_with_a_weight_of_zero() {
        for (value, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("*", false),
            ("identity, xgzip", false),
            ("", false),
        ] {
            let header = (ACCEPT_ENCODING, HeaderValue::from_static(value));
            let headers = HeaderMap::from_iter([header]);
            assert_eq!(accepts_gzip(&headers), accepted, "{value}");
        }
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
