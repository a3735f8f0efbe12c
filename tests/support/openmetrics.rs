//! A strict reader of OpenMetrics 1.0, written from the grammar and the rules of the specification: what it takes, every parser has to take.
//! It knows the types of metrics that the exporter has.

use std::collections::{BTreeMap, BTreeSet};
use std::str::Chars;

/// Returns an error unless a rule holds.
macro_rules! ensure {
    ($holds:expr, $($rule:tt)+) => {
        if !$holds {
            return Err(format!($($rule)+));
        }
    };
}

/// Label names and values, in the order of the text.
pub(crate) type Labels = Vec<(String, String)>;

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
const SUFFIXES: [(&str, &[&str]); 4] = [
    ("counter", &["_total"]),
    ("gauge", &[""]),
    ("unknown", &[""]),
    ("histogram", &["_bucket", "_count", "_sum"]),
];

/// Reads a whole exposition. The error is the first line that breaks a rule, and the rule.
pub(crate) fn parse(text: &str) -> Result<Vec<Family>, String> {
    let lines = text.strip_suffix("# EOF\n");
    let lines = lines.ok_or("the last line is not # EOF")?;
    let mut families: Vec<Family> = Vec::new();
    for line in lines.split_inclusive('\n') {
        let read = match (line.strip_suffix('\n'), line.strip_prefix("# ")) {
            (None, _) => Err("# EOF is not on a line of its own".to_owned()),
            (_, Some(descriptor)) => self::descriptor(&mut families, descriptor.trim_end()),
            (Some(line), None) => sample(line).and_then(|sample| place(&mut families, sample)),
        };
        read.map_err(|error| format!("{error}: {line}"))?;
    }
    let mut names = BTreeSet::new();
    for family in &families {
        for suffix in suffixes(&family.kind)? {
            // Prometheus has one name for all: a gauge a_count and a histogram a are the same to it.
            let name = format!("{}{suffix}", family.name);
            ensure!(names.insert(name.clone()), "{name} belongs to two families");
        }
        check(family).map_err(|error| format!("{}: {error}", family.name))?;
    }
    Ok(families)
}

fn suffixes(kind: &str) -> Result<&'static [&'static str], String> {
    let found = SUFFIXES.iter().find(|(known, _)| *known == kind);
    found.map_or(Err(format!("no such type: {kind}")), |found| Ok(found.1))
}

/// Returns the value of every series.
pub(crate) fn series(families: &[Family]) -> BTreeMap<(String, Labels), f64> {
    let samples = families.iter().flat_map(|family| &family.samples);
    let key = |sample: &Sample| (sample.name.clone(), sorted(&sample.labels));
    samples.map(|sample| (key(sample), sample.value)).collect()
}

fn sorted(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.sort();
    labels
}

fn descriptor(families: &mut Vec<Family>, text: &str) -> Result<(), String> {
    let (keyword, rest) = text.split_once(' ').ok_or("a comment is not allowed")?;
    let (name, rest) = rest.split_once(' ').ok_or("a descriptor has three words")?;
    ensure!(is_metric_name(name), "not a metric name");
    if families.last().is_none_or(|family| family.name != name) {
        let is_new = families.iter().all(|family| family.name != name);
        ensure!(is_new, "the family is interleaved with another");
        families.push(Family {
            name: name.to_owned(),
            ..Family::default()
        });
    }
    let family = families.last_mut().ok_or("no family")?;
    ensure!(family.samples.is_empty(), "a descriptor after the samples");
    let field = match keyword {
        "TYPE" => &mut family.kind,
        "HELP" => &mut family.help,
        _ => return Err("no such descriptor".to_owned()),
    };
    ensure!(field.is_empty(), "a second {keyword}");
    *field = escaped(&mut rest.chars(), None)?;
    Ok(())
}

fn place(families: &mut [Family], sample: Sample) -> Result<(), String> {
    let family = families.last_mut();
    let family = family.ok_or("a sample before any descriptor")?;
    let suffix = sample.name.strip_prefix(&family.name);
    let suffix = suffix.ok_or("a sample of another family")?;
    let is_known = suffixes(&family.kind)?.contains(&suffix);
    ensure!(is_known, "a {} has no such samples", family.kind);
    let may_have = sample.exemplar.is_none() || ["_total", "_bucket"].contains(&suffix);
    ensure!(may_have, "an exemplar where none is allowed");
    family.samples.push(sample);
    Ok(())
}

/// The rules for a whole family: no series twice, and no metric between two parts of another.
fn check(family: &Family) -> Result<(), String> {
    let mut seen: BTreeMap<(&String, Labels), Option<f64>> = BTreeMap::new();
    let mut done: BTreeSet<Labels> = BTreeSet::new();
    let mut current: Option<Labels> = None;
    for sample in &family.samples {
        let mut labels = sorted(&sample.labels);
        // A series has one point, or several of which each has a time after the one before.
        let before = seen.insert((&sample.name, labels.clone()), sample.time);
        let is_later = before.is_none_or(|before| before.is_some() && before < sample.time);
        ensure!(is_later, "{} {labels:?} twice", sample.name);
        labels.retain(|(name, _)| name != "le");
        if current.as_ref() != Some(&labels) {
            let is_new = done.insert(labels.clone());
            ensure!(is_new, "the points of {labels:?} are not together");
            current = Some(labels);
        }
        let is_count = sample.value >= 0.0 && sample.value.is_finite();
        let is_right = is_count || family.kind != "counter";
        ensure!(is_right, "a counter at {}", sample.value);
    }
    let mut histograms = done.iter().filter(|_| family.kind == "histogram");
    histograms.try_for_each(|labels| histogram(family, labels))
}

fn histogram(family: &Family, labels: &Labels) -> Result<(), String> {
    let (mut buckets, mut count, mut sum) = (Vec::new(), None, None);
    for sample in &family.samples {
        let mut rest = sorted(&sample.labels);
        let bound: Labels = rest.extract_if(.., |(name, _)| name == "le").collect();
        if rest != *labels {
            continue;
        }
        match sample.name.strip_prefix(&family.name) {
            Some("_bucket") => {
                let (_, bound) = bound.first().ok_or("a bucket without le")?;
                let is_canonical = bound == "+Inf" || bound.contains(['.', 'e']);
                ensure!(is_canonical, "le {bound} is not in the canonical form");
                buckets.push((number(bound)?, sample.value));
            }
            Some("_count") => count = Some(sample.value),
            Some("_sum") => sum = Some(sample.value),
            _ => {}
        }
    }
    let mut pairs = buckets.windows(2);
    let rise = pairs.all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
    ensure!(rise, "buckets do not rise");
    let (bound, all) = buckets.last().ok_or("no buckets")?;
    ensure!(*bound == f64::INFINITY, "no bucket +Inf");
    ensure!(count == Some(*all), "the count is not the bucket +Inf");
    ensure!(sum.is_some(), "no sum");
    Ok(())
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(end);
    ensure!(is_metric_name(name), "not a metric name");
    let (labels, rest) = match rest.starts_with('{') {
        true => label_set(rest)?,
        false => (Labels::new(), rest),
    };
    let (point, mut exemplar) = (rest, None);
    let point = point.split_once(" # ").map_or(Ok(point), |(point, rest)| {
        let (labels, rest) = label_set(rest)?;
        let texts = labels.iter().flat_map(|(name, value)| [name, value]);
        let length: usize = texts.map(|text| text.chars().count()).sum();
        ensure!(length <= EXEMPLAR_CHARACTERS, "an exemplar of {length}");
        exemplar = Some((labels, values(rest)?.0));
        Ok(point)
    })?;
    let (value, time) = values(point)?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
        time,
        exemplar,
    })
}

/// A space, a value, and perhaps a space and a time.
fn values(text: &str) -> Result<(f64, Option<f64>), String> {
    let text = text.strip_prefix(' ').ok_or("one space before a value")?;
    let (value, time) = match text.split_once(' ') {
        Some((value, time)) => (value, Some(time)),
        None => (text, None),
    };
    ensure!(time.is_none_or(is_real), "{time:?} is not a time");
    Ok((number(value)?, time.map(number).transpose()?))
}

fn label_set(text: &str) -> Result<(Labels, &str), String> {
    let mut rest = text.strip_prefix('{').ok_or("labels begin with a brace")?;
    let mut labels = Labels::new();
    if let Some(rest) = rest.strip_prefix('}') {
        return Ok((labels, rest));
    }
    loop {
        let (name, value) = rest.split_once("=\"").ok_or("a label without =\"")?;
        ensure!(is_label_name(name), "{name:?} is not a label name");
        let is_new = labels.iter().all(|(known, _)| known != name);
        ensure!(is_new, "the label {name} twice");
        let mut chars = value.chars();
        labels.push((name.to_owned(), escaped(&mut chars, Some('"'))?));
        match chars.next() {
            Some(',') => rest = chars.as_str(),
            Some('}') => return Ok((labels, chars.as_str())),
            other => return Err(format!("{other:?} after a label")),
        }
    }
}

/// A text up to its end, or to a quote if it ends with one.
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
    let is_number = ["+Inf", "-Inf", "NaN"].contains(&text) || is_real(text);
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| format!("{text:?} is not a number"))
}

/// Whether a text has only what a number can have, so that neither `inf` nor `0x1` is one.
fn is_real(text: &str) -> bool {
    text.bytes().all(|byte| b"+-.0123456789eE".contains(&byte))
}

fn is_metric_name(name: &str) -> bool {
    is_label_name(&name.replace(':', "_"))
}

fn is_label_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
