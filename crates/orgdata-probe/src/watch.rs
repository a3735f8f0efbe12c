//! Questions whose answers take a while (`--watch`).

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ask::{Asker, Found, Known, found};
use crate::sample::Sample;

/// How often the listing is looked at.
const ROUNDS: u32 = 4;

/// Watches the newest entries. Returns the answers about late ones and about an old cursor.
pub(crate) async fn ask(
    asker: &mut Asker,
    sample: &Sample,
    wait: Duration,
) -> Known<[Known<Found>; 2]> {
    let begun = Instant::now();
    let newest = asker.audit(&[("limit", "5")]).await?;
    let cursor = newest.cursor("endCursor").ok_or("there is no cursor")?;
    let query = [("limit", "5"), ("before", cursor)];
    let below = asker.audit(&query).await?.ids()?;
    let late = late(asker, sample, wait).await;
    let (old, age) = (asker.audit(&query).await?, begun.elapsed());
    let now = asker.audit(&[("limit", sample.limit)]).await?;
    let (ids, now) = (old.ids()?, now.ids()?);
    let evidence = format!("status {}, {} s old", old.status, age.as_secs());
    let top = newest.ids()?.into_iter().next();
    let expired = match (below.first(), top) {
        (Some(first), Some(top)) if !below.contains(&top) => match () {
            () if old.status != 200 => found("refused", evidence),
            () if ids == below => found("valid", evidence),
            // What was below the cursor is still there.
            () if ids.is_empty() && now.contains(first) => found("an empty page", evidence),
            () if !ids.is_empty() && now.starts_with(&ids) => found("the first page", evidence),
            () => Err("the entries around it have changed".to_owned()),
        },
        _ => Err("there are too few entries, or cursors are not honoured".to_owned()),
    };
    Ok([late, expired])
}

/// Looks for entries that appear below one that was there before.
async fn late(asker: &mut Asker, sample: &Sample, wait: Duration) -> Known<Found> {
    let (mut before, mut late, mut new) = (None::<HashSet<String>>, 0, 0);
    for round in 0..=ROUNDS {
        sleep(wait * round.min(1)).await;
        let page = asker.audit(&[("limit", sample.limit)]).await;
        let Ok(ids) = page.and_then(|page| page.ids()) else {
            before = None;
            continue;
        };
        if let Some(before) = before {
            let is_new: Vec<bool> = ids.iter().map(|id| !before.contains(id)).collect();
            let first = is_new.iter().position(|new| !new).unwrap_or(0);
            let last = is_new.iter().rposition(|new| !new).unwrap_or(0);
            let count = |range: &[bool]| range.iter().filter(|new| **new).count();
            new += count(&is_new[..last]);
            late += count(&is_new[first..last]);
        }
        before = Some(ids.into_iter().collect());
    }
    let evidence = format!("{late} of {new} new entries");
    match (late, new) {
        (0, 0) => Err("no entry arrived, or too many at a time".to_owned()),
        (0, _) => found("none seen", evidence),
        _ => found("entries appear below newer ones", evidence),
    }
}
