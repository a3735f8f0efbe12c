//! `--to openmetrics FILE`: the counters of a range as they would have stood; and `--dry-run`, which only counts.

use std::io::Write as _;
use std::path::Path;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use super::BackfillError;
use super::file::{SampleFile, beside};
use super::fold::Fold;
use super::plan::Plan;
use super::progress::{Position, Progress};
use super::samples::Grid;
use super::scan::Scan;
use super::spool::Spool;

/// The last sample stands so long before the end: the exporter's own first sample is a lower one, and has to come later, also where its
/// scraper's clock and the service's differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// Activity types that `--dry-run` names.
const TYPES_SHOWN: u32 = 10;

/// Writes the file.
pub(super) async fn run(
    plan: Plan,
    path: &Path,
    shutdown: CancellationToken,
) -> Result<(), BackfillError> {
    announce(&plan);
    let mut spool = Spool::open(Some(beside(path, "spool")))?;
    // What cannot be written is better known before an hour of reading.
    let mut file = SampleFile::create(path, &plan.labels)?;
    read(&plan, &mut spool, &shutdown).await?;

    let contents = spool.contents()?;
    let end = plan
        .range
        .until
        .checked_sub(CLOCKS_DIFFER)
        .unwrap_or(plan.range.until);
    let seconds = |duration: std::time::Duration| {
        i64::try_from(duration.as_secs())
            .unwrap_or(i64::MAX / 2)
            .clamp(0, i64::from(u32::MAX))
    };
    let grid = Grid::new(seconds(plan.step), seconds(plan.fill), end.as_second());
    let mut fold = Fold::new(
        plan.settings.ledger.max_actors,
        plan.settings.ledger.actor_idle,
    );
    spool.fold(&mut fold, &shutdown, |at| grid.place(at.as_microsecond()))?;
    spool.each_series(|activity_type, actor, rises| {
        check(&shutdown)?;
        file.series(activity_type, actor);
        grid.expand(rises, |at, value| file.sample(at, value))
    })?;
    let (samples, series) = file.finish()?;
    say(&told(
        &plan,
        path,
        contents.events,
        series,
        samples,
        fold.folded,
    ));
    Ok(())
}

/// Counts what is in the range.
pub(super) async fn count(plan: Plan, shutdown: CancellationToken) -> Result<(), BackfillError> {
    announce(&plan);
    let mut spool = Spool::open(None)?;
    let pages = read(&plan, &mut spool, &shutdown).await?;
    let contents = spool.contents()?;
    let mut text = format!(
        "{} audit entries {}, in {pages} pages",
        contents.events, plan.range
    );
    if let (Some(oldest), Some(newest)) = (contents.oldest, contents.newest) {
        text.push_str(&format!(
            "; the oldest is of {oldest}, the newest of {newest}"
        ));
    }
    text.push('\n');
    for (activity_type, events) in spool.by_type(TYPES_SHOWN)? {
        let shown: String = activity_type
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(100)
            .collect();
        text.push_str(&format!("{events:>10}  {shown}\n"));
    }
    say(&text);
    Ok(())
}

/// Reads the range into the spool; returns how many pages there were.
async fn read(
    plan: &Plan,
    spool: &mut Spool,
    shutdown: &CancellationToken,
) -> Result<u64, BackfillError> {
    let (mut scan, mut progress) = (Scan::new(plan)?, Progress::new());
    let (mut pages, mut events) = (0, 0);
    loop {
        let page = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Err(stopped()),
            page = scan.next() => page?,
        };
        let Some(mut page) = page else {
            return Ok(pages);
        };
        page.retain(|event| plan.range.holds(event.created_at));
        events += spool.add(&page, &plan.settings.ledger.actor_label)?;
        pages += 1;
        progress.show(Position {
            doing: "reading",
            count: events,
            unit: "audit entries",
            part: scan.part(),
        });
    }
}

pub(super) fn check(shutdown: &CancellationToken) -> Result<(), BackfillError> {
    if shutdown.is_cancelled() {
        Err(stopped())
    } else {
        Ok(())
    }
}

fn stopped() -> BackfillError {
    BackfillError::Failed(
        "stopped before the end; nothing was written, run the same command again".to_owned(),
    )
}

fn announce(plan: &Plan) {
    let rate = plan.settings.api.max_requests_per_second;
    tracing::info!(
        range = %plan.range,
        "reading history with at most {rate} requests per second, besides those of a running exporter; --api.max-requests-per-second changes that"
    );
}

fn told(plan: &Plan, path: &Path, events: u64, series: u64, samples: u64, folded: u64) -> String {
    let path = path.display();
    let mut text = format!(
        "{path}: {events} audit events {} as {samples} samples of {series} series\n",
        plan.range
    );
    if folded > 0 {
        text.push_str(&format!("{folded} events are counted under actor=\"other\", since there are more than --metrics.max-actors\n"));
    }
    if events == 0 {
        text.push_str("There is nothing to make blocks of.\n");
    } else {
        text.push_str(&format!(
            "Next: promtool tsdb create-blocks-from --max-block-duration=744h openmetrics {path} DIRECTORY, with Prometheus' --storage.tsdb.path\n"
        ));
    }
    text
}

/// Says what came of it. Whoever reads it may be gone.
pub(super) fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
