//! Questions about cursors, by requests whose right answers follow from the entries that are known.

use std::collections::HashSet;
use std::ops::Range;

use crate::ask::{Asker, Found, Page, Told, found};
use crate::sample::Sample;

/// How often it is tried if entries arrive meanwhile.
const ATTEMPTS: u32 = 3;
/// The number of entries between which the meanings of cursors differ.
const MANY: usize = 20;
/// The place of the entry whose cursor is given to `before`.
const UPPER: usize = 1;

/// The answers about `before`, both, and `after`.
pub(crate) type Answers = [Told<Found>; 3];

/// Asks until the newest entries are the same before and after.
pub(crate) async fn ask(asker: &mut Asker, sample: &mut Sample) -> Answers {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        let result = async {
            let newest = asker.audit(&[("limit", "5")]).await?;
            sample.add(&newest)?;
            let answers = once(asker, sample, &newest).await;
            let again = asker.audit(&[("limit", "5")]).await?;
            match newest.ids()? == again.ids()? {
                true => Ok(answers),
                false => Err("entries arrive all the time".to_owned()),
            }
        };
        match result.await {
            Ok(answers) => return answers,
            Err(error) => why = error,
        }
    }
    [(); 3].map(|()| Err(why.clone()))
}

async fn once(asker: &mut Asker, sample: &Sample, newest: &Page) -> Answers {
    let failed = |why: String| [(); 3].map(|()| Err(why.clone()));
    let (before, pair) = match before(asker, sample, newest).await {
        Ok(told) => told,
        Err(why) => return failed(why),
    };
    match before_and_after(asker, sample, &pair).await {
        Ok([both, after]) => [Ok(before), both, after],
        Err(why) => [Ok(before), Err(why.clone()), Err(why)],
    }
}

/// Requests two entries below the newest ones, and tells whether that of the cursor is one of them.
async fn before(asker: &mut Asker, sample: &Sample, newest: &Page) -> Told<(Found, Page)> {
    let (ids, count) = (&sample.ids, newest.items.len());
    if !ids.starts_with(&sample.in_order(newest)?) || count < 2 || ids.len() < count + 2 {
        return Err("there are too few entries, or pages are too short".to_owned());
    }
    let cursor = newest.cursor("endCursor").ok_or("there is no cursor")?;
    let page = asker.audit(&[("limit", "2"), ("before", cursor)]).await?;
    let seen = page.ids()?;
    let is = |range: Range<usize>| same(&seen, &ids[range]);
    let answer = match page.status {
        200 if seen.is_empty() => "an empty page",
        200 if seen.contains(&ids[0]) => "the first page",
        200 if is(count - 1..count + 1) => "inclusive",
        200 if is(count..count + 2) => "exclusive",
        200 => return Err("the page below has other entries".to_owned()),
        _ => "refused",
    };
    let evidence = format!("status {}, below {count} entries", page.status);
    Ok((found(answer, evidence)?, page))
}

/// Requests entries with a cursor near the top and one below it: first with both, then with each alone, which shows that they were valid.
async fn before_and_after(
    asker: &mut Asker,
    sample: &Sample,
    pair: &Page,
) -> Told<[Told<Found>; 2]> {
    let ids = &sample.ids;
    let few = || "there are too few entries, or pages are too short".to_owned();
    let upper = asker.audit(&[("limit", &(UPPER + 1).to_string())]).await?;
    let before = upper.cursor("endCursor").ok_or("there is no cursor")?;
    let after = pair.cursor("startCursor").ok_or("there is no cursor")?;
    let first = sample.in_order(pair)?.into_iter().next().ok_or_else(few)?;
    let lower = ids.iter().position(|id| *id == first).ok_or_else(few)?;
    let full = sample.lengths[0].min(MANY);
    if !same(&upper.ids()?, &ids[..=UPPER]) || lower < UPPER + 2 || lower + 1 >= full {
        return Err(few());
    }
    let limit = full.to_string();
    let both = [("limit", &*limit), ("before", before), ("after", after)];
    let both = asker.audit(&both).await?;
    let near = asker.audit(&[("limit", "2"), ("after", after)]).await?;
    for (name, cursor, ranges) in [
        ("after", after, [0..lower, 0..lower + 1]),
        ("before", before, [UPPER..ids.len(), UPPER + 1..ids.len()]),
    ] {
        let seen = asker
            .audit(&[("limit", &limit), (name, cursor)])
            .await?
            .ids()?;
        if !ranges
            .into_iter()
            .any(|range| is_page(&seen, &ids[range], full))
        {
            return Err(format!("{name} alone was not answered as expected"));
        }
    }

    let seen = near.ids()?;
    let is = |range: Range<usize>| same(&seen, &ids[range]);
    let evidence = "with a limit of 2";
    let after = match () {
        () if is(0..2) => found("the newest entries", evidence),
        () if is(lower - 2..lower) || is(lower - 1..lower + 1) => {
            found("the nearest entries", evidence)
        }
        () => Err("the entries are neither the nearest nor the newest".to_owned()),
    };

    let seen = both.ids()?;
    let meanings = [
        ("both apply", UPPER..lower + 1),
        ("only before applies", UPPER..ids.len()),
        ("only after applies", 0..lower + 1),
        ("neither applies", 0..ids.len()),
    ];
    let mut fitting = meanings.into_iter().filter(|(_, range)| {
        // Each cursor may return its own entry or not.
        let start = range.start + usize::from(range.start == UPPER);
        let end = range.end - usize::from(range.end == lower + 1);
        let mut ranges = [range.start, start]
            .into_iter()
            .flat_map(|start| [start..range.end, start..end]);
        ranges.any(|range| is_page(&seen, &ids[range], full))
    });
    let evidence = format!("status {}, {} entries", both.status, seen.len());
    let both = match (fitting.next(), fitting.next()) {
        _ if both.status != 200 => found("refused", evidence),
        _ if seen.is_empty() => found("an empty page", evidence),
        (Some((meaning, _)), None) => found(meaning, evidence),
        _ => Err("the entries fit no meaning, or several".to_owned()),
    };
    Ok([both, after])
}

/// Returns whether the ids are the same, in any order.
fn same(seen: &[String], ids: &[String]) -> bool {
    let set = |ids: &[String]| HashSet::<String>::from_iter(ids.iter().cloned());
    seen.len() == ids.len() && set(seen) == set(ids)
}

/// Returns whether a page has these entries, or the first or the last of them if they do not fit.
fn is_page(seen: &[String], ids: &[String], full: usize) -> bool {
    match ids.len().checked_sub(full) {
        Some(rest) => same(seen, &ids[..full]) || same(seen, &ids[rest..]),
        None => same(seen, ids),
    }
}
