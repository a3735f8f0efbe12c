//! Questions about the ticket listing (specification, sections 2.3 and 4.2).

use std::collections::HashSet;

use orgdata_api::Endpoint;
use serde_json::Value;

use crate::Report;
use crate::ask::{Asker, Found, Known, Page, found};
use crate::audit::largest_page;
use crate::shape;

/// The limit of a page, and the maximum number of pages.
const LIMIT: usize = 1000;
const MAX_PAGES: usize = 6;
/// The number of tickets that show an order.
const MIN_TICKETS: usize = 6;

/// Asks everything about the tickets.
pub(crate) async fn ask(asker: &mut Asker, report: &mut Report) -> Known<()> {
    let first = asker.tickets(LIMIT, 0).await?.succeeded()?;
    let [nulls, deviations] = shape::fields(&first.items, shape::TICKET);
    report.add("tickets: null fields", nulls);
    report.add("tickets: deviations from the contract", deviations);
    let rows = &first.items;
    for (question, field) in [("tickets: types", "type"), ("tickets: states", "state")] {
        let known = shape::values(rows.len(), rows.iter().map(|row| &row[field]));
        report.add(question, known);
    }
    let deals = || rows.iter().filter_map(|row| row["linkedDeals"].as_array());
    let priorities = deals().flatten().map(|deal| &deal["priority"]);
    report.add("tickets: priorities", shape::values(rows.len(), priorities));
    let without = rows.len() - deals().filter(|deals| !deals.is_empty()).count();
    report.add(
        "tickets: without deals",
        match rows.len() {
            0 => Err("there is no ticket".to_owned()),
            all => found(without.to_string(), format!("of {all} tickets")),
        },
    );
    for field in ["createdAt", "closedAt", "targetDueDate"] {
        report.add(
            &format!("tickets: form of {field}"),
            shape::times(rows, field),
        );
    }
    report.add("tickets: order", order(rows));
    report.add("tickets: offset", offset(asker).await);
    let top = asker.tickets(1, 0).await?.succeeded()?;
    let query = [("limit", "5"), ("offset", "1000000000")];
    let known = asker.outcome(Endpoint::Tickets, &query, &top).await;
    let again = asker.tickets(1, 0).await?.ids()?;
    let known = known.and_then(|known| match again == top.ids()? {
        true => Ok(known),
        false => Err("tickets came or went".to_owned()),
    });
    report.add("tickets: offset beyond the end", known);

    let mut pages = vec![first];
    let mut known: HashSet<String> = pages[0].ids()?.into_iter().collect();
    let mut is_whole = false;
    while pages.len() < MAX_PAGES && !is_whole {
        let page = asker.tickets(LIMIT, known.len()).await?.succeeded()?;
        let (ids, before) = (page.ids()?, known.len());
        known.extend(ids.iter().cloned());
        if known.len() != before + ids.len() {
            break;
        }
        is_whole = ids.is_empty();
        pages.push(page);
    }
    // Tickets that came meanwhile could be taken for a second page.
    let again = asker.tickets(LIMIT, 0).await?.ids()?;
    let is_same = again == pages[0].ids()?;
    let lengths = pages.iter().map(|page| page.items.len());
    let lengths: Vec<usize> = lengths.take(if is_same { MAX_PAGES } else { 1 }).collect();
    report.add("tickets: largest page", largest_page(&lengths, "1000"));
    pages.push(top);
    let listed = is_whole.then_some(known.len());
    report.add("tickets: totalCount", total_count(&pages, listed, is_same));
    Ok(())
}

fn order(rows: &[Value]) -> Known<Found> {
    let mut reversed = rows.to_vec();
    reversed.reverse();
    let descends = [rows, &reversed].map(|rows| shape::descends(rows, "createdAt"));
    let answer = match descends {
        _ if rows.len() < MIN_TICKETS => return Err("there are too few tickets".to_owned()),
        [Some(true), Some(false)] => "newest first",
        [Some(false), Some(true)] => "oldest first",
        [Some(false), Some(false)] => "not by createdAt",
        _ => return Err("createdAt cannot be read, or is the same for all".to_owned()),
    };
    found(answer, format!("{} tickets", rows.len()))
}

/// Requests two tickets and the second one by its offset, again and again: tickets may come and go.
async fn offset(asker: &mut Asker) -> Known<Found> {
    let two = asker.tickets(2, 0).await?.succeeded()?.ids()?;
    let one = asker.tickets(1, 1).await?;
    for _ in 0..2 {
        let again = asker.tickets(2, 0).await?.ids()?;
        if again != two || asker.tickets(1, 1).await?.ids()? != one.ids()? {
            return Err("tickets came or went".to_owned());
        }
    }
    match (&*two, &*one.ids()?) {
        _ if one.status != 200 => found("refused", format!("status {}", one.status)),
        ([_, second], [id]) if id == second => {
            found("honoured", "an offset of 1 leads to the second ticket")
        }
        ([first, _], [id]) if id == first => {
            found("ignored", "an offset of 1 leads to the first ticket")
        }
        _ => Err("there are fewer than two tickets, or pages are shorter".to_owned()),
    }
}

/// Compares `totalCount` with the tickets that were listed; the last page has one ticket.
fn total_count(pages: &[Page], listed: Option<usize>, is_same: bool) -> Known<Found> {
    let counts: Vec<Option<i64>> = pages
        .iter()
        .map(|page| page.body["totalCount"].as_i64())
        .collect();
    let is_length = |(page, count): (&Page, &Option<i64>)| *count == Some(page.items.len() as i64);
    let are_lengths = pages.iter().zip(&counts).all(is_length);
    let listed = match listed {
        _ if counts.iter().all(Option::is_none) => {
            return found("missing", "null, no number, or not there");
        }
        _ if !is_same => return Err("tickets came or went".to_owned()),
        _ if are_lengths && counts[0] > Some(1) => {
            return found("the number of tickets on the page", "it differs by page");
        }
        _ if counts.iter().any(|count| *count != counts[0]) => {
            return Err("tickets came or went".to_owned());
        }
        Some(listed) if listed > 1 => listed,
        _ => return Err("there are fewer than two tickets, or too many pages".to_owned()),
    };
    let count = counts[0].unwrap_or_default();
    let evidence = format!("it says {count}, and {listed} tickets were listed");
    match count == listed as i64 {
        true => found("right", evidence),
        false if listed == pages[0].items.len() => found("wrong", evidence),
        false => Err(format!("{evidence}, but tickets may have come or gone")),
    }
}
