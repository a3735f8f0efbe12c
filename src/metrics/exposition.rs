//! The two forms of a scrape: OpenMetrics 1.0, and the classic text form 0.0.4 derived from it.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// A form in which the metrics can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, as `prometheus-client` writes it.
    OpenMetrics,
    /// Prometheus' text form 0.0.4, which every scraper and `promtool check metrics` read.
    Text,
}

// === impl Format ===

impl Format {
    /// The value of `Content-Type` that goes with [`Format::encode`]. Prometheus chooses its parser by it, so a body under
    /// the other name is a failed scrape.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes every family of `registry`; `capacity` is the size to expect, in bytes.
    ///
    /// This is synchronous and takes tens of milliseconds at 100,000 series: not for a runtime thread.
    ///
    /// # Errors
    ///
    /// When a collector fails, or a family cannot be written as text.
    pub fn encode(self, registry: &Registry, capacity: usize) -> Result<String, fmt::Error> {
        let mut openmetrics = String::with_capacity(capacity);
        text::encode(&mut openmetrics, registry)?;
        Ok(match self {
            Self::OpenMetrics => openmetrics,
            Self::Text => classic(&openmetrics),
        })
    }
}

/// Derives the classic text form from OpenMetrics.
///
/// The two differ only in lines that hold a `#` somewhere: descriptors, the end marker, and samples with an exemplar. So
/// only those are looked at, and everything between them is copied as it is.
fn classic(openmetrics: &str) -> String {
    // What is added (`_total` in two lines of a counter family) is little, what is dropped is often more.
    let mut out = String::with_capacity(openmetrics.len() + openmetrics.len() / 16 + 64);
    let mut help = None;
    let mut copied = 0;
    while let Some(found) = openmetrics[copied..].find('#') {
        let found = copied + found;
        let start = openmetrics[copied..found]
            .rfind('\n')
            .map_or(copied, |newline| copied + newline + 1);
        let end = openmetrics[found..]
            .find('\n')
            .map_or(openmetrics.len(), |newline| found + newline + 1);
        out.push_str(&openmetrics[copied..start]);
        let line = openmetrics[start..end].trim_end_matches('\n');
        match line.strip_prefix("# ") {
            Some(descriptor) => classic_descriptor(&mut out, &mut help, descriptor),
            None => {
                out.push_str(without_exemplar(line));
                out.push('\n');
            }
        }
        copied = end;
    }
    out.push_str(&openmetrics[copied..]);
    out
}

/// Writes `HELP` and `TYPE` of one family, once both are known: `HELP` comes first, but the type decides the name.
fn classic_descriptor<'a>(
    out: &mut String,
    help: &mut Option<(&'a str, &'a str)>,
    descriptor: &'a str,
) {
    let mut words = descriptor.splitn(3, ' ');
    let (keyword, name, rest) = (
        words.next(),
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    match keyword {
        Some("HELP") => *help = Some((name, rest)),
        Some("TYPE") => {
            // In OpenMetrics a family is named without the suffix of its samples; in the classic form the names are the same.
            let (suffix, kind) = match rest {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "gauge" | "histogram" | "summary" => ("", rest),
                _ => ("", "untyped"),
            };
            if let Some((helped, text)) = help.take()
                && helped == name
            {
                out.extend(["# HELP ", name, suffix, " "]);
                escape_help(out, text);
                out.push('\n');
            }
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        }
        // UNIT and EOF are comments to a classic parser, and noise to a reader.
        _ => {}
    }
}

/// In the classic form a HELP text has two escapes, the backslash and the line feed; it has no line feed here.
fn escape_help(out: &mut String, text: &str) {
    for (index, part) in text.split('\\').enumerate() {
        if index > 0 {
            out.push_str("\\\\");
        }
        out.push_str(part);
    }
}

/// The sample without its exemplar. A label value may hold ` # {` itself, so the labels are walked, not searched.
fn without_exemplar(sample: &str) -> &str {
    let labels_end = match sample.find(['{', ' ']) {
        Some(open) if sample.as_bytes()[open] == b'{' => open + labels_length(&sample[open..]),
        Some(space) => space,
        None => return sample,
    };
    match sample[labels_end..].find(" # ") {
        Some(exemplar) => &sample[..labels_end + exemplar],
        None => sample,
    }
}

/// How many bytes the label set at the start of `text` takes, braces included.
fn labels_length(text: &str) -> usize {
    let mut quoted = false;
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
mod tests;
