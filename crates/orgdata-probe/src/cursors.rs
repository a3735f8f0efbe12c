//! Questions about cursors, by requests whose right answers follow from the entries that are known.

use std::ops::Range;

use crate::Report;
use crate::ask::{Asker, Found, Known, Page, found};
use crate::sample::Sample;

/// The questions.
pub(crate) const QUESTIONS: [&str; 3] = [
    "before",
    "before and after together",
    "after with more than a page",
];
/// How often it is tried if entries arrive meanwhile.
const ATTEMPTS: u32 = 3;
/// The number of entries by which the meanings of cursors differ.
const MANY: usize = 20;
/// The place of the entry whose cursor is given to `before`.
const UPPER: usize = 1;

type Answers = Vec<Known<Found>>;

/// Asks until the newest entries are the same before and after.
pub(crate) async fn ask(asker: &mut Asker, report: &mut Report, sample: &mut Sample) -> Known<()> {
    for _ in 0..ATTEMPTS {
        let newest = asker.below("5", None).await?;
        sample.add(&newest)?;
        let mut answers = Vec::new();
        let result = once(asker, sample, &newest, &mut answers).await;
        if newest.ids()? == asker.below("5", None).await?.ids()? {
            for (question, known) in QUESTIONS.into_iter().zip(answers) {
                report.add(question, known);
            }
            return result;
        }
    }
    Err("entries arrive all the time".to_owned())
}

async fn once(
    asker: &mut Asker,
    sample: &Sample,
    newest: &Page,
    answers: &mut Answers,
) -> Known<()> {
    let few = "there are too few entries, or pages are too short";
    let (ids, count) = (&sample.ids, newest.items.len());
    if !ids.starts_with(&newest.ids()?) || count < 2 || ids.len() < count + 2 {
        return Err(few.to_owned());
    }
    let cursor = |page: &Page, name| {
        page.cursor(name)
            .map(str::to_owned)
            .ok_or("there is no cursor")
    };
    let pair = asker
        .audit(&[("limit", "2"), ("before", &cursor(newest, "endCursor")?)])
        .await?;
    let seen = pair.ids()?;
    let evidence = format!("status {}, below {count} entries", pair.status);
    answers.push(match () {
        () if pair.status != 200 => found("refused", evidence),
        () if seen.is_empty() => found("an empty page", evidence),
        () if seen.contains(&ids[0]) => found("the first page", evidence),
        () if seen == ids[count - 1..=count] => found("inclusive", evidence),
        () if seen == ids[count..count + 2] => found("exclusive", evidence),
        () => Err("the page below has other entries".to_owned()),
    });

    // A cursor near the top and one below it: both, then each alone, which shows that they were valid.
    let upper = asker.below(&(UPPER + 1).to_string(), None).await?;
    let lower = ids
        .iter()
        .position(|id| Some(id) == seen.first())
        .unwrap_or(0);
    let full = sample.pages[0].items.len().min(MANY);
    if upper.ids()? != ids[..=UPPER] || lower < UPPER + 2 || lower + 1 >= full {
        return Err(few.to_owned());
    }
    let (before, after) = (cursor(&upper, "endCursor")?, cursor(&pair, "startCursor")?);
    let (before, after) = (("before", &*before), ("after", &*after));
    let limit = full.to_string();
    let limit = ("limit", &*limit);
    let both = asker.audit(&[limit, before, after]).await?;
    let near = asker.audit(&[("limit", "2"), after]).await?.ids()?;
    for (cursor, ranges) in [
        (after, [0..lower, 0..lower + 1]),
        (before, [UPPER..ids.len(), UPPER + 1..ids.len()]),
    ] {
        let seen = asker.audit(&[limit, cursor]).await?.ids()?;
        if !ranges
            .into_iter()
            .any(|range| is_page(&seen, &ids[range], full))
        {
            return Err(format!("{} alone was not answered as expected", cursor.0));
        }
    }
    let seen = both.ids()?;
    let fits = |(_, range): &(&str, Range<usize>)| {
        // Each cursor may return its own entry or not.
        let start = range.start + usize::from(range.start == UPPER);
        let end = range.end - usize::from(range.end == lower + 1);
        let starts = [range.start, start].into_iter();
        let mut ranges = starts.flat_map(|start| [start..range.end, start..end]);
        ranges.any(|range| is_page(&seen, &ids[range], full))
    };
    let meanings = [
        ("both apply", UPPER..lower + 1),
        ("only before applies", UPPER..ids.len()),
        ("only after applies", 0..lower + 1),
        ("neither applies", 0..ids.len()),
    ];
    let fitting: Vec<_> = meanings.into_iter().filter(fits).collect();
    let evidence = format!("status {}, {} entries", both.status, seen.len());
    answers.push(match &*fitting {
        _ if both.status != 200 => found("refused", evidence),
        _ if seen.is_empty() => found("an empty page", evidence),
        [(meaning, _)] => found(*meaning, evidence),
        _ => Err("the entries fit no meaning, or several".to_owned()),
    });
    answers.push(match () {
        () if is_same(&near, &ids[..2]) => found("the newest entries", "with a limit of 2"),
        () if [lower - 2, lower - 1]
            .iter()
            .any(|at| is_same(&near, &ids[*at..*at + 2])) =>
        {
            found("the nearest entries", "with a limit of 2")
        }
        () => Err("the entries are neither the nearest nor the newest".to_owned()),
    });
    Ok(())
}

/// Returns whether a page has these entries, or the first or the last of them if they do not fit.
fn is_page(seen: &[String], ids: &[String], full: usize) -> bool {
    match ids.len().checked_sub(full) {
        Some(rest) => is_same(seen, &ids[..full]) || is_same(seen, &ids[rest..]),
        None => is_same(seen, ids),
    }
}

/// Compares ids in any order: pages of newer entries may be listed oldest first.
fn is_same(seen: &[String], ids: &[String]) -> bool {
    seen.len() == ids.len() && ids.iter().all(|id| seen.contains(id))
}
