//! An API that does not return the ticket at an offset: it computes pages of the limit, or stops at the last whole page.

use std::time::Duration;

use orgdata_api::Client;
use orgdata_exporter::app::scan_tickets;
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::support::captured::Captured;
use crate::support::settings::ledger;
use crate::tickets::support::{Failure, Request, Script, bugs, page, round, rows_of, settings};

const PAGE: u32 = 10;

/// What an API takes for the offset of a request, of so many tickets; `None` if it answers 404.
type Reading = fn(Request, u64) -> Option<u64>;

const READINGS: [(&str, Reading); 6] = [
    ("rounded down", |it, _| Some(down(it))),
    ("rounded up", |it, _| {
        Some(it.offset.next_multiple_of(it.limit.into()))
    }),
    ("never beyond the end", |it, total| {
        Some(it.offset.min(total.saturating_sub(it.limit.into())))
    }),
    ("never beyond the last page", |it, total| {
        let last = total.saturating_sub(1) / u64::from(it.limit);
        Some(down(it).min(last * u64::from(it.limit)))
    }),
    ("no page beyond the end", |it, total| {
        Some(down(it)).filter(|offset| *offset < total || it.offset == 0)
    }),
    ("as documented", |it, _| Some(it.offset)),
];

fn down(request: Request) -> u64 {
    request.offset - request.offset % u64::from(request.limit)
}

/// A listing of so many tickets, with at most `cap` on a page.
fn listing(total: u64, cap: u32, reading: Reading) -> Script {
    let rows = bugs(0..total);
    Script::new(move |request| {
        let limit = request.limit.min(cap);
        let taken = Request { limit, ..request };
        let Some(offset) = reading(taken, total) else {
            return Err(Failure::Status(404));
        };
        let taken = Request { offset, ..taken };
        Ok(page(rows_of(&rows, taken), request, Some(total)))
    })
}

#[tokio::test]
async fn every_ticket_is_read_whatever_an_api_takes_for_the_offset() {
    for ((name, reading), cap) in READINGS.into_iter().flat_map(|it| [(it, PAGE), (it, 7)]) {
        for total in [0, 1, 7, 9, 10, 11, 15, 19, 20, 21, 25, 30, 45, 99] {
            let case = format!("{name}, {total} tickets, {cap} on a page");
            let (scanned, _) = round(&listing(total, cap, reading), PAGE).await;
            let (snapshot, doubt) = scanned.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(snapshot.tickets, total, "{case}");
            assert_eq!(snapshot.consistent, doubt.is_none(), "{case}");
            let may_doubt = total >= cap.into() && name != "as documented";
            assert!(may_doubt || doubt.is_none(), "{case}: {doubt:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_line_says_why_the_tickets_are_not_consistent() {
    for (name, reading) in READINGS {
        let log = Captured::begin_at(tracing::Level::INFO);
        let metrics = Metrics::new(Duration::ZERO);
        let client = Client::clone(&listing(25, PAGE, reading));
        let (ledger, _) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let _ends = shutdown.clone().drop_guard();
        let run = scan_tickets(
            client,
            settings(PAGE),
            ledger,
            metrics.clone(),
            health,
            shutdown,
        );
        tokio::spawn(run);
        tokio::time::sleep(Duration::from_secs(20 * 60)).await;
        let snapshot = metrics.tickets.snapshot().expect(name);
        let is_right = name == "as documented";
        assert_eq!(
            (snapshot.tickets, snapshot.consistent),
            (25, is_right),
            "{name}"
        );
        let lines = log.lines();
        assert_eq!(lines.len(), usize::from(!is_right), "{name}: {lines:?}");
        assert!(
            lines.iter().all(|line| line.contains("offset")),
            "{lines:?}"
        );
    }
}
