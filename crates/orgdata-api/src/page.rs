//! Pages of both listings (specification, sections 2.2 and 2.3): one body, and where its items lie in it.

use std::ops::Range;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::Error;
use serde_json::value::RawValue;

use super::few::Few;
use super::number::Number;
use super::query::Cursor;

/// The most items of one page, many times what may be asked for (specification, section 8).
const MAX_ITEMS: usize = 100_000;

/// A page of the audit log listing. Items are read one by one, so that a bad one hides none of the others.
#[derive(Clone, Debug)]
pub struct AuditPage {
    items: Items,
    /// Cursor for newer entries.
    pub start_cursor: Option<Cursor>,
    /// Cursor for older entries.
    pub end_cursor: Option<Cursor>,
    /// What the service says of newer pages; the specification does not say how far to trust it.
    pub has_previous: bool,
    /// What the service says of older pages; likewise.
    pub has_more: bool,
    /// The service's clock (`Date`) when it answered, else this machine's.
    pub server_time: Timestamp,
}

/// A page of the ticket listing.
#[derive(Clone, Debug)]
pub struct TicketPage {
    items: Items,
    /// The limit that the service echoed.
    pub limit: Option<u64>,
    /// The offset that the service echoed.
    pub offset: Option<u64>,
    /// How many tickets there are, as far as the service says so.
    pub total_count: Option<u64>,
    /// The service's clock (`Date`) when it answered, else this machine's.
    pub server_time: Timestamp,
}

/// The raw items of a page, as ranges of the body they came in.
#[derive(Clone, Debug)]
struct Items {
    body: String,
    ranges: Vec<Range<usize>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawAuditPage<'a> {
    #[serde(borrow)]
    items: Few<&'a RawValue, MAX_ITEMS>,
    #[serde(default)]
    start_cursor: Option<Cursor>,
    #[serde(default)]
    end_cursor: Option<Cursor>,
    #[serde(default)]
    has_previous: Option<bool>,
    #[serde(default)]
    has_more: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTicketPage<'a> {
    #[serde(borrow)]
    items: Few<&'a RawValue, MAX_ITEMS>,
    // A tool to read the tickets, and not what is read: what is no number is as good as absent.
    #[serde(borrow, default)]
    limit: Option<&'a RawValue>,
    #[serde(borrow, default)]
    offset: Option<&'a RawValue>,
    #[serde(borrow, default)]
    total_count: Option<&'a RawValue>,
}

// === impl AuditPage ===

impl AuditPage {
    /// Reads a page; the second value counts fields that the specification does not name.
    ///
    /// # Errors
    /// Where the body is not such a page.
    pub fn parse(body: String, server_time: Timestamp) -> Result<(Self, u64), serde_json::Error> {
        let (raw, unknown) = read::<RawAuditPage<'_>>(&body)?;
        let (start_cursor, end_cursor) = (raw.start_cursor, raw.end_cursor);
        let (has_previous, has_more) = (
            raw.has_previous.unwrap_or(false),
            raw.has_more.unwrap_or(false),
        );
        let ranges = ranges(&body, &raw.items)?;
        Ok((
            Self {
                items: Items { body, ranges },
                start_cursor,
                end_cursor,
                has_previous,
                has_more,
                server_time,
            },
            unknown,
        ))
    }

    /// The items as the service wrote them, in its order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.items.iter()
    }

    /// One item as the service wrote it; empty where there is none.
    pub fn item(&self, index: usize) -> &str {
        self.items
            .ranges
            .get(index)
            .map_or("", |range| &self.items.body[range.clone()])
    }

    /// The whole answer, to keep it.
    pub fn body(&self) -> &str {
        &self.items.body
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.ranges.is_empty()
    }

    /// Bytes of the body.
    pub fn bytes(&self) -> usize {
        self.items.body.len()
    }
}

// === impl TicketPage ===

impl TicketPage {
    /// Reads a page; the second value counts fields that the specification does not name.
    ///
    /// # Errors
    /// Where the body is not such a page.
    pub fn parse(body: String, server_time: Timestamp) -> Result<(Self, u64), serde_json::Error> {
        let (raw, unknown) = read::<RawTicketPage<'_>>(&body)?;
        let (limit, offset, total_count) =
            (whole(raw.limit), whole(raw.offset), whole(raw.total_count));
        let ranges = ranges(&body, &raw.items)?;
        Ok((
            Self {
                items: Items { body, ranges },
                limit,
                offset,
                total_count,
                server_time,
            },
            unknown,
        ))
    }

    /// The items as the service wrote them, in its order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.items.iter()
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.ranges.is_empty()
    }
}

// === impl Items ===

impl Items {
    fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.ranges.iter().map(|range| &self.body[range.clone()])
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<(T, u64), serde_json::Error> {
    let mut unknown = 0;
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let page = serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)?;
    deserializer.end()?;
    Ok((page, unknown))
}

/// Where each item lies in the body: a borrowed raw value is a slice of it.
fn ranges(
    body: &str,
    few: &Few<&RawValue, MAX_ITEMS>,
) -> Result<Vec<Range<usize>>, serde_json::Error> {
    if few.more {
        return Err(serde_json::Error::custom(format_args!(
            "more than {MAX_ITEMS} items on a page"
        )));
    }
    let start = body.as_ptr() as usize;
    let range = |item: &&RawValue| {
        let offset = item.get().as_ptr() as usize - start;
        offset..offset + item.get().len()
    };
    Ok(few.items.iter().map(range).collect())
}

/// A count, where the service sent one; a negative or fractional one is none, and neither is text.
fn whole(raw: Option<&RawValue>) -> Option<u64> {
    match serde_json::from_str(raw?.get()).ok()? {
        Number::Whole(n) => u64::try_from(n).ok(),
        Number::Fraction(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_slices_of_the_body_in_its_order() {
        let body = r#"{"items":[ {"a": 1}, "odd" ,3],"startCursor":"s","endCursor":null,"hasPrevious":false,"hasMore":true,"new":1}"#;
        let (page, unknown) =
            AuditPage::parse(body.to_owned(), Timestamp::UNIX_EPOCH).expect("valid");
        assert_eq!(
            page.items().collect::<Vec<_>>(),
            [r#"{"a": 1}"#, "\"odd\"", "3"]
        );
        assert_eq!(page.start_cursor.as_ref().map(Cursor::as_str), Some("s"));
        assert_eq!((page.end_cursor, page.has_more, unknown), (None, true, 1));
    }

    #[test]
    fn a_page_of_more_items_than_anybody_asks_for_is_an_error() {
        let body = |items: usize| {
            format!(
                r#"{{"items":[{}0],"limit":1000,"offset":0}}"#,
                "0,".repeat(items - 1)
            )
        };
        assert_eq!(
            TicketPage::parse(body(MAX_ITEMS), Timestamp::UNIX_EPOCH)
                .expect("valid")
                .0
                .len(),
            MAX_ITEMS
        );
        let error =
            TicketPage::parse(body(MAX_ITEMS + 1), Timestamp::UNIX_EPOCH).expect_err("too many");
        assert!(
            error.to_string().contains("more than 100000 items"),
            "{error}"
        );
    }

    #[test]
    fn a_page_without_items_is_an_error() {
        assert!(AuditPage::parse("{}".to_owned(), Timestamp::UNIX_EPOCH).is_err());
        assert!(TicketPage::parse(r#"{"items":null}"#.to_owned(), Timestamp::UNIX_EPOCH).is_err());
    }

    #[test]
    fn a_total_that_is_no_count_is_none() {
        let (page, _) = TicketPage::parse(
            r#"{"items":[],"limit":100,"offset":0,"totalCount":-1}"#.to_owned(),
            Timestamp::UNIX_EPOCH,
        )
        .expect("valid");
        assert_eq!((page.limit, page.total_count), (Some(100), None));
    }

    #[test]
    fn what_a_page_says_of_itself_in_another_type_is_as_good_as_absent() {
        for odd in ["\"7\"", "true", "null", "{}", "1e400"] {
            let body = format!(
                r#"{{"items":[{{"id":1}}],"limit":{odd},"offset":{odd},"totalCount":{odd}}}"#
            );
            let (page, _) = TicketPage::parse(body, Timestamp::UNIX_EPOCH).expect(odd);
            assert_eq!(
                (page.len(), page.limit, page.offset, page.total_count),
                (1, None, None, None),
                "{odd}"
            );
        }
    }
}
