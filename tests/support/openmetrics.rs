//! Reads what the exporter writes as OpenMetrics. `tests/golden` has all of it, and `tests/real/formats.rs` shows that real servers read it.

use std::collections::BTreeMap;

/// Label names and values, sorted.
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
}

/// Reads a whole exposition. The error is the first line that cannot be read.
pub(crate) fn parse(text: &str) -> Result<Vec<Family>, String> {
    let lines = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let mut families: Vec<Family> = Vec::new();
    for line in lines.lines() {
        let is_read = match line.strip_prefix("# ") {
            Some(descriptor) => self::descriptor(&mut families, descriptor),
            None => sample(line).and_then(|sample| {
                families.last_mut()?.samples.push(sample);
                Some(())
            }),
        };
        is_read.ok_or_else(|| format!("cannot read {line:?}"))?;
    }
    Ok(families)
}

/// Returns the value of every series.
pub(crate) fn series(families: &[Family]) -> BTreeMap<(String, Labels), f64> {
    let samples = families.iter().flat_map(|family| &family.samples);
    let series = samples.map(|one| ((one.name.clone(), one.labels.clone()), one.value));
    series.collect()
}

fn descriptor(families: &mut Vec<Family>, text: &str) -> Option<()> {
    let mut words = text.splitn(3, ' ');
    let (keyword, name, rest) = (words.next()?, words.next()?, words.next()?.to_owned());
    if families.last().is_none_or(|family| family.name != name) {
        families.push(Family {
            name: name.to_owned(),
            ..Family::default()
        });
    }
    let family = families.last_mut()?;
    match keyword {
        "TYPE" => family.kind = rest,
        "HELP" => family.help = rest,
        _ => return None,
    }
    Some(())
}

fn sample(line: &str) -> Option<Sample> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = Labels::new();
    while let Some(label) = rest.strip_prefix(['{', ',']) {
        let (name, value) = label.split_once("=\"")?;
        let mut chars = value.chars();
        let mut value = String::new();
        loop {
            value.push(match chars.next()? {
                '"' => break,
                '\\' => match chars.next()? {
                    'n' => '\n',
                    escaped => escaped,
                },
                other => other,
            });
        }
        labels.push((name.to_owned(), value));
        rest = chars.as_str();
    }
    labels.sort();
    let point = rest.trim_start_matches('}').strip_prefix(' ')?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        // A scrape has no times.
        value: point.parse().ok()?,
    })
}
