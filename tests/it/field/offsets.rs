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

fn listing(total: u64, reading: Reading) -> Script {
    let rows = bugs(0..total);
    Script::new(move |request| {
        let Some(offset) = reading(request, total) else {
            return Err(Failure::Status(404));
        };
        let taken = Request { offset, ..request };
        Ok(page(rows_of(&rows, taken), request, Some(total)))
    })
}

#[tokio::test]
async fn every_ticket_is_read_whatever_an_api_takes_for_the_offset() {
    for (name, reading) in READINGS {
        for total in [0, 1, 9, 10, 11, 15, 19, 20, 21, 25, 30, 45, 99] {
            let (scanned, _) = round(&listing(total, reading), PAGE).await;
            let (snapshot, doubt) =
                scanned.unwrap_or_else(|error| panic!("{name}, {total}: {error}"));
            assert_eq!(snapshot.tickets, total, "{name}");
            assert_eq!(snapshot.consistent, doubt.is_none());
            let must_doubt = total > PAGE.into() && name != "as documented";
            let may_doubt = total >= PAGE.into() && name != "as documented";
            assert!(!must_doubt || doubt.is_some(), "{name}, {total}");
            assert!(may_doubt || doubt.is_none(), "{name}, {total}: {doubt:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_line_says_why_the_tickets_are_not_consistent() {
    for (name, reading) in READINGS {
        let log = Captured::begin_at(tracing::Level::INFO);
        let metrics = Metrics::new(Duration::ZERO);
        let client = Client::clone(&listing(25, reading));
        let (ledger, _) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
        let (health, shutdown) = (Health::default(), CancellationToken::new());
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
