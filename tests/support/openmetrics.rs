//! A strict reader of OpenMetrics 1.0, written from the grammar and the rules of the specification: what it takes, every parser has to take.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::collections::{BTreeMap, BTreeSet};
use std::str::Chars;

/// Label names and values, in the order of the text.
pub(crate) type Labels = Vec<(String, String)>;

/// One metric family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

/// One line that is not a descriptor.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
    /// In seconds; a scrape has none.
    pub(crate) time: Option<f64>,
    pub(crate) exemplar: Option<(Labels, f64)>,
}

/// The longest label set of an exemplar, names and values, in characters.
const EXEMPLAR_CHARACTERS: usize = 128;

/// The suffixes that the samples of each type have.
const SUFFIXES: [(&str, &[&str]); 9] = [
    ("counter", &["_total", "_created"]),
    ("gauge", &[""]),
    ("histogram", &["_bucket", "_count", "_sum", "_created"]),
    ("gaugehistogram", &["_bucket", "_gcount", "_gsum"]),
    ("summary", &["", "_count", "_sum", "_created"]),
    ("info", &["_info"]),
    ("stateset", &[""]),
    ("unknown", &[""]),
    ("", &[""]),
];

/// Reads a whole exposition.
///
/// # Errors
///
/// The first line that breaks a rule, and the rule.
pub(crate) fn parse(text: &str) -> Result<Vec<Family>, String> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let body = body
        .strip_suffix("# EOF")
        .ok_or("the last line is not # EOF")?;
    let body = if body.is_empty() {
        body
    } else {
        body.strip_suffix('\n')
            .ok_or("# EOF is not on a line of its own")?
    };
    let mut families: Vec<Family> = Vec::new();
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for (index, line) in body.split('\n').enumerate().filter(|_| !body.is_empty()) {
        let read = match line.strip_prefix("# ") {
            Some(descriptor) => self::descriptor(&mut families, &mut units, descriptor),
            None => sample(line).and_then(|sample| place(&mut families, sample)),
        };
        read.map_err(|error| format!("line {}: {error}: {line}", index + 1))?;
    }
    let mut names = BTreeSet::new();
    for family in &families {
        for (_, suffixes) in SUFFIXES.iter().filter(|(kind, _)| *kind == family.kind) {
            for suffix in *suffixes {
                // Prometheus has one name for all: a gauge a_count and a histogram a cannot be told apart.
                ensure(names.insert(format!("{}{suffix}", family.name)), || {
                    format!("{}{suffix} belongs to two families", family.name)
                })?;
            }
        }
        check(family).map_err(|error| format!("{}: {error}", family.name))?;
    }
    Ok(families)
}

/// The value of every series.
pub(crate) fn series(families: &[Family]) -> BTreeMap<(String, Labels), f64> {
    let samples = families.iter().flat_map(|family| &family.samples);
    samples
        .map(|sample| {
            let mut labels = sample.labels.clone();
            labels.sort();
            ((sample.name.clone(), labels), sample.value)
        })
        .collect()
}

fn ensure(holds: bool, rule: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule()) }
}

fn descriptor(
    families: &mut Vec<Family>,
    units: &mut BTreeMap<String, String>,
    text: &str,
) -> Result<(), String> {
    let (keyword, rest) = text.split_once(' ').ok_or("a comment is not allowed")?;
    let (name, rest) = rest.split_once(' ').ok_or("a descriptor has three words")?;
    ensure(is_metric_name(name), || "not a metric name".to_owned())?;
    if families.last().is_none_or(|family| family.name != name) {
        ensure(families.iter().all(|family| family.name != name), || {
            "the family is interleaved with another".to_owned()
        })?;
        families.push(Family {
            name: name.to_owned(),
            ..Family::default()
        });
    }
    let family = families.last_mut().ok_or("no family")?;
    ensure(family.samples.is_empty(), || {
        "a descriptor after the samples".to_owned()
    })?;
    match keyword {
        "TYPE" => {
            ensure(family.kind.is_empty(), || "a second TYPE".to_owned())?;
            ensure(
                !rest.is_empty() && SUFFIXES.iter().any(|(kind, _)| *kind == rest),
                || "no such type".to_owned(),
            )?;
            rest.clone_into(&mut family.kind);
        }
        "HELP" => {
            ensure(family.help.is_empty(), || "a second HELP".to_owned())?;
            let mut chars = rest.chars();
            family.help = escaped(&mut chars, None)?;
        }
        "UNIT" => {
            ensure(name.ends_with(&format!("_{rest}")), || {
                "the unit is not the end of the name".to_owned()
            })?;
            ensure(
                units.insert(name.to_owned(), rest.to_owned()).is_none(),
                || "a second UNIT".to_owned(),
            )?;
        }
        _ => return Err("no such descriptor".to_owned()),
    }
    Ok(())
}

fn place(families: &mut [Family], sample: Sample) -> Result<(), String> {
    let family = families
        .last_mut()
        .ok_or("a sample before any descriptor")?;
    let (_, suffixes) = SUFFIXES
        .iter()
        .find(|(kind, _)| *kind == family.kind)
        .ok_or("no such type")?;
    let suffix = sample
        .name
        .strip_prefix(&family.name)
        .ok_or("a sample of another family")?;
    ensure(suffixes.contains(&suffix), || {
        format!("a {} has no samples like this", family.kind)
    })?;
    if sample.exemplar.is_some() {
        ensure(["_total", "_bucket"].contains(&suffix), || {
            "an exemplar where none is allowed".to_owned()
        })?;
    }
    family.samples.push(sample);
    Ok(())
}

/// The rules for a whole family: no series twice, and no metric between two parts of another.
fn check(family: &Family) -> Result<(), String> {
    let mut seen: BTreeMap<(&String, Labels), Option<f64>> = BTreeMap::new();
    let mut done: BTreeSet<Labels> = BTreeSet::new();
    let mut current: Option<Labels> = None;
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.sort();
        // A series has one point, or several of which each has a time after the one before.
        let before = seen.insert((&sample.name, labels.clone()), sample.time);
        ensure(
            before.is_none_or(|before| before.is_some() && before < sample.time),
            || format!("{} {labels:?} twice", sample.name),
        )?;
        labels.retain(|(name, _)| {
            !(name == "le" && family.kind.ends_with("histogram")
                || name == "quantile" && family.kind == "summary")
        });
        if current.as_ref() != Some(&labels) {
            ensure(done.insert(labels.clone()), || {
                format!("the points of {labels:?} are not together")
            })?;
            current = Some(labels);
        }
        match family.kind.as_str() {
            "counter" => ensure(sample.value >= 0.0 && sample.value.is_finite(), || {
                format!("a counter at {}", sample.value)
            })?,
            "info" => ensure(sample.value == 1.0, || "an info that is not 1".to_owned())?,
            _ => {}
        }
    }
    if family.kind == "histogram" {
        for labels in done {
            histogram(family, &labels)?;
        }
    }
    Ok(())
}

fn histogram(family: &Family, labels: &Labels) -> Result<(), String> {
    let (mut buckets, mut count, mut sum) = (Vec::new(), None, None);
    for sample in &family.samples {
        let (bound, mut rest): (Labels, Labels) = sample
            .labels
            .clone()
            .into_iter()
            .partition(|(name, _)| name == "le");
        rest.sort();
        if rest == *labels {
            match sample.name.strip_prefix(&family.name) {
                Some("_bucket") => {
                    let bound = &bound.first().ok_or("a bucket without le")?.1;
                    ensure(bound == "+Inf" || bound.contains(['.', 'e']), || {
                        format!("le {bound} is not in the canonical form")
                    })?;
                    buckets.push((number(bound)?, sample.value));
                }
                Some("_count") => count = Some(sample.value),
                Some("_sum") => sum = Some(sample.value),
                _ => {}
            }
        }
    }
    ensure(
        buckets
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
        || "buckets do not rise".to_owned(),
    )?;
    ensure(
        buckets
            .last()
            .is_some_and(|(bound, _)| *bound == f64::INFINITY),
        || "no bucket +Inf".to_owned(),
    )?;
    ensure(count == buckets.last().map(|(_, value)| *value), || {
        "the count is not the bucket +Inf".to_owned()
    })?;
    ensure(sum.is_some(), || "no sum".to_owned())
}

fn sample(line: &str) -> Result<Sample, String> {
    ensure(!line.is_empty(), || "an empty line".to_owned())?;
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let name = &line[..end];
    ensure(is_metric_name(name), || "not a metric name".to_owned())?;
    let (labels, rest) = if line[end..].starts_with('{') {
        label_set(&line[end..])?
    } else {
        (Labels::new(), &line[end..])
    };
    let rest = rest.strip_prefix(' ').ok_or("one space before the value")?;
    let (point, exemplar) = match rest.split_once(" # ") {
        Some((point, exemplar)) => (point, Some(exemplar)),
        None => (rest, None),
    };
    let (value, time) = values(point)?;
    let exemplar = exemplar
        .map(|text| -> Result<_, String> {
            let (labels, rest) = label_set(text)?;
            let length: usize = labels
                .iter()
                .map(|(name, value)| name.chars().count() + value.chars().count())
                .sum();
            ensure(length <= EXEMPLAR_CHARACTERS, || {
                format!("an exemplar of {length} characters")
            })?;
            Ok((
                labels,
                values(
                    rest.strip_prefix(' ')
                        .ok_or("one space before the exemplar's value")?,
                )?
                .0,
            ))
        })
        .transpose()?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
        time,
        exemplar,
    })
}

/// A value and perhaps a time after it.
fn values(text: &str) -> Result<(f64, Option<f64>), String> {
    let mut words = text.split(' ');
    let value = number(words.next().unwrap_or_default())?;
    let time = words.next();
    ensure(time.is_none_or(is_real), || {
        format!("{time:?} is not a time")
    })?;
    ensure(words.next().is_none(), || "more after the time".to_owned())?;
    Ok((value, time.map(number).transpose()?))
}

fn label_set(text: &str) -> Result<(Labels, &str), String> {
    let mut chars = text.chars();
    ensure(chars.next() == Some('{'), || {
        "labels begin with a brace".to_owned()
    })?;
    let mut labels = Labels::new();
    if let Some(rest) = chars.as_str().strip_prefix('}') {
        return Ok((labels, rest));
    }
    loop {
        let (name, rest) = chars.as_str().split_once('=').ok_or("a label without =")?;
        ensure(is_label_name(name), || {
            format!("{name:?} is not a label name")
        })?;
        ensure(labels.iter().all(|(known, _)| known != name), || {
            format!("the label {name} twice")
        })?;
        chars = rest
            .strip_prefix('"')
            .ok_or("a label value begins with a quote")?
            .chars();
        labels.push((name.to_owned(), escaped(&mut chars, Some('"'))?));
        match chars.next() {
            Some(',') => {}
            Some('}') => return Ok((labels, chars.as_str())),
            other => return Err(format!("{other:?} after a label")),
        }
    }
}

/// A text up to its end, or to a quote where it ends with one.
fn escaped(chars: &mut Chars<'_>, end: Option<char>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('\\') => match chars.next() {
                Some('n') => text.push('\n'),
                Some(c @ ('"' | '\\')) => text.push(c),
                other => return Err(format!("the escape \\{other:?}")),
            },
            Some('"') if end.is_none() => return Err("a quote that is not escaped".to_owned()),
            c if c == end => return Ok(text),
            Some(c) => text.push(c),
            None => return Err("a text without its end".to_owned()),
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    let word = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let is_word =
        text.len() - word.len() <= 1 && ["inf", "infinity", "nan"].contains(&word.as_str());
    ensure(is_word || is_real(text), || {
        format!("{text:?} is not a number")
    })?;
    text.parse()
        .map_err(|_| format!("{text:?} is not a number"))
}

/// Digits with at most one point, and perhaps an exponent.
fn is_real(text: &str) -> bool {
    let unsigned = |text: &str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = text
        .split_once(['e', 'E'])
        .map_or((text, None), |(mantissa, exponent)| {
            (mantissa, Some(exponent))
        });
    let mantissa = unsigned(mantissa);
    exponent.is_none_or(|exponent| digits(&unsigned(exponent)))
        && digits(&mantissa.replacen('.', "", 1))
}

fn is_metric_name(name: &str) -> bool {
    is_label_name(&name.replace(':', "_"))
}

fn is_label_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
