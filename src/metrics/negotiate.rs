//! Which form of a scrape a client asked for in `Accept`, and whether it takes gzip.

use super::exposition::Format;

/// Names under which `Accept` may ask for OpenMetrics. The first drafts of the format are read by the same parsers as 1.0.
const OPENMETRICS_VERSIONS: [&str; 2] = ["1.0.0", "0.0.1"];

/// The one version of the classic text form.
const TEXT_VERSIONS: [&str; 1] = ["0.0.4"];

/// The quality of a range without `q`, in thousandths.
const FULL_QUALITY: u16 = 1000;

/// One element of `Accept` or `Accept-Encoding`.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    quality: u16,
}

/// How well a range fits a format; a more specific one decides over a less specific one (RFC 9110, section 12.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Anything,
    Type,
    Named,
    Versioned,
}

/// Chooses the form for the values of `Accept`.
///
/// OpenMetrics is for those who name it: without the header, with wildcards alone, and when nothing fits, the answer is
/// the classic text form, which a person and every scraper can read. A scrape is never refused for its `Accept`.
pub fn format<'a>(accept: impl IntoIterator<Item = &'a str>) -> Format {
    let (mut openmetrics, mut text) = (None, None);
    for range in accept.into_iter().flat_map(ranges) {
        consider(
            &mut openmetrics,
            &range,
            "application/openmetrics-text",
            &OPENMETRICS_VERSIONS,
        );
        consider(&mut text, &range, "text/plain", &TEXT_VERSIONS);
    }
    let quality = |best: Option<(Specificity, u16)>| best.map_or(0, |(_, quality)| quality);
    let named = openmetrics.is_some_and(|(specificity, _)| specificity >= Specificity::Named);
    if quality(openmetrics) > quality(text)
        || (named && quality(openmetrics) > 0 && quality(openmetrics) == quality(text))
    {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

/// Whether the values of `Accept-Encoding` allow gzip, and do not prefer the plain form.
pub fn gzip<'a>(accept_encoding: impl IntoIterator<Item = &'a str>) -> bool {
    let (mut gzip, mut identity, mut anything) = (None, None, None);
    for range in accept_encoding.into_iter().flat_map(ranges) {
        let quality = match range.name {
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                &mut gzip
            }
            name if name.eq_ignore_ascii_case("identity") => &mut identity,
            "*" => &mut anything,
            _ => continue,
        };
        *quality = Some(quality.map_or(range.quality, |known: u16| known.max(range.quality)));
    }
    let gzip = gzip.or(anything).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Splits a header value; an element that cannot be understood is passed over, as if it were not there.
fn ranges(value: &str) -> impl Iterator<Item = Range<'_>> {
    value.split(',').filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let mut range = Range {
            name,
            version: None,
            quality: FULL_QUALITY,
        };
        for parameter in parts {
            match parameter.split_once('=') {
                Some((key, value)) if key.trim().eq_ignore_ascii_case("q") => {
                    range.quality = quality(value.trim())?
                }
                Some((key, value)) if key.trim().eq_ignore_ascii_case("version") => {
                    range.version = Some(value.trim().trim_matches('"'))
                }
                // `charset`, `escaping` and what else may come do not change what is chosen.
                _ => {}
            }
        }
        Some(range)
    })
}

/// A quality in thousandths. Whole numbers, since `NaN` would compare false with everything and could pin itself as the best.
fn quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u16>().ok()?;
    // A fourth digit and what follows do not matter.
    let thousandths = fraction
        .bytes()
        .chain([b'0'; 3])
        .take(3)
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    Some(if whole == 0 {
        thousandths
    } else {
        FULL_QUALITY
    })
}

/// Keeps the quality of the most specific range that fits; of two equally specific ones, the higher.
fn consider(
    best: &mut Option<(Specificity, u16)>,
    range: &Range<'_>,
    media_type: &str,
    versions: &[&str],
) {
    let Some(specificity) = specificity(range, media_type, versions) else {
        return;
    };
    if best.is_none_or(|known| (specificity, range.quality) > known) {
        *best = Some((specificity, range.quality));
    }
}

fn specificity(range: &Range<'_>, media_type: &str, versions: &[&str]) -> Option<Specificity> {
    let general = media_type.split_once('/').map(|(general, _)| general);
    if range.name.eq_ignore_ascii_case(media_type) {
        match range.version {
            Some(version) => versions
                .contains(&version)
                .then_some(Specificity::Versioned),
            None => Some(Specificity::Named),
        }
    } else if range.name == "*/*" {
        Some(Specificity::Anything)
    } else {
        let asked = range.name.strip_suffix("/*")?;
        general
            .is_some_and(|general| asked.eq_ignore_ascii_case(general))
            .then_some(Specificity::Type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS_2_42: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3_5: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4";
    const PROMETHEUS_NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
        application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const VICTORIA_METRICS: &str = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
    const BROWSER: &str =
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

    fn openmetrics(accept: &str) -> bool {
        format([accept]) == Format::OpenMetrics
    }

    #[test]
    fn prometheus_gets_openmetrics() {
        assert!(openmetrics(PROMETHEUS_2_42));
        assert!(openmetrics(PROMETHEUS_3_5));
    }

    #[test]
    fn a_form_that_is_not_offered_is_passed_over() {
        assert!(openmetrics(PROMETHEUS_NATIVE));
    }

    #[test]
    fn victoria_metrics_gets_the_classic_form() {
        assert!(!openmetrics(VICTORIA_METRICS));
    }

    #[test]
    fn a_browser_gets_the_classic_form() {
        assert!(!openmetrics(BROWSER));
    }

    #[test]
    fn no_header_means_the_classic_form() {
        assert_eq!(format([]), Format::Text);
        assert!(!openmetrics(""));
    }

    #[test]
    fn wildcards_alone_mean_the_classic_form() {
        assert!(!openmetrics("*/*"));
        assert!(!openmetrics("*/*;q=0.1"));
        assert!(!openmetrics("text/*, */*;q=0.9"));
    }

    #[test]
    fn a_wildcard_for_applications_alone_means_openmetrics() {
        assert!(openmetrics("application/*"));
    }

    #[test]
    fn the_higher_quality_wins() {
        assert!(openmetrics(
            "text/plain;q=0.5, application/openmetrics-text;q=0.51"
        ));
        assert!(!openmetrics(
            "application/openmetrics-text;q=0.5, text/plain;q=0.501"
        ));
    }

    #[test]
    fn openmetrics_wins_a_tie_when_it_is_named() {
        assert!(openmetrics("text/plain, application/openmetrics-text"));
        assert!(openmetrics("*/*, application/openmetrics-text"));
    }

    #[test]
    fn the_draft_version_is_openmetrics_too() {
        assert!(openmetrics("application/openmetrics-text; version=0.0.1"));
    }

    #[test]
    fn an_unknown_version_does_not_match() {
        assert!(!openmetrics("application/openmetrics-text;version=2.0.0"));
        assert!(openmetrics(
            "text/plain;version=1.0.0, application/openmetrics-text;version=1.0.0;q=0.1"
        ));
    }

    #[test]
    fn a_quoted_version_matches() {
        assert!(openmetrics(
            "application/openmetrics-text;version=\"1.0.0\""
        ));
    }

    #[test]
    fn names_are_compared_without_case() {
        assert!(openmetrics(
            "Application/OpenMetrics-Text; Version=1.0.0; Q=0.9, text/plain; q=0.8"
        ));
    }

    #[test]
    fn zero_quality_refuses_a_form() {
        assert!(!openmetrics("application/openmetrics-text;q=0, */*"));
        assert!(openmetrics(
            "text/plain;q=0, application/openmetrics-text;q=0.1"
        ));
    }

    #[test]
    fn a_specific_range_decides_over_a_wildcard() {
        assert!(!openmetrics(
            "application/openmetrics-text;q=0.1, */*;q=0.9"
        ));
    }

    #[test]
    fn everything_refused_still_gets_an_answer() {
        assert!(!openmetrics("*/*;q=0"));
        assert!(!openmetrics(
            "application/openmetrics-text;q=0, text/plain;q=0"
        ));
    }

    #[test]
    fn several_headers_count_as_one() {
        assert_eq!(
            format(["text/plain;q=0.5", "application/openmetrics-text"]),
            Format::OpenMetrics
        );
    }

    #[test]
    fn a_malformed_quality_passes_the_range_over() {
        for quality in ["NaN", "-1", "", "0.x", "1e3", "inf"] {
            assert!(
                !openmetrics(&format!("application/openmetrics-text;q={quality}")),
                "q={quality}"
            );
        }
    }

    #[test]
    fn a_quality_above_one_is_one() {
        assert!(openmetrics(
            "application/openmetrics-text;q=7, text/plain;q=0.9"
        ));
    }

    #[test]
    fn a_malformed_header_never_fails() {
        for header in [
            ",,,;;;",
            ";q=1",
            "application/openmetrics-text;;;=;q",
            "/",
            "*",
            "\u{feff}é/ü;q=0.5",
            "a/b;version=\"",
            "text/plain;q=0.99999999999999",
        ] {
            format([header]);
            gzip([header]);
        }
    }

    #[test]
    fn gzip_is_used_when_it_is_named() {
        assert!(gzip(["gzip"]));
        assert!(gzip(["deflate, gzip;q=0.5, br"]));
        assert!(gzip(["GZIP"]));
    }

    #[test]
    fn gzip_is_used_when_anything_goes() {
        assert!(gzip(["*"]));
        assert!(!gzip(["*;q=0"]));
    }

    #[test]
    fn without_the_header_nothing_is_compressed() {
        assert!(!gzip([]));
        assert!(!gzip([""]));
        assert!(!gzip(["br, zstd"]));
    }

    #[test]
    fn zero_quality_refuses_gzip() {
        assert!(!gzip(["gzip;q=0, *"]));
    }

    #[test]
    fn the_plain_form_can_be_preferred() {
        assert!(!gzip(["identity, gzip;q=0.5"]));
        assert!(gzip(["gzip, identity;q=0.5"]));
    }
}
