//! An API that does not return the ticket at an offset: it computes pages of the limit, or stops at the last whole page.

use crate::tickets::support::{Failure, Request, Script, bugs, page, round, rows_of};

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
        for total in [0, 1, 7, 9, 10, 11, 20, 25, 45] {
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
