//! Pages of both listings (specification, sections 2.2 and 2.3): a body, and where its items are in it.

use std::ops::{Deref, Range};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bounded::Bounded;
use super::fields::{each_field, kind};
use super::number::Number;
use super::query::Cursor;

/// The maximum number of items of a page: many times what may be requested (specification, section 8).
const MAX_ITEMS: usize = 100_000;

/// A page of the audit log listing.
#[derive(Clone, Debug)]
pub struct AuditPage {
    items: Items,
    /// The cursor for newer entries.
    pub start_cursor: Option<Cursor>,
    /// The cursor for older entries.
    pub end_cursor: Option<Cursor>,
    /// `hasPrevious`. The specification does not say how far to trust it.
    pub has_previous: bool,
    /// `hasMore`. The specification does not say how far to trust it.
    pub has_more: bool,
    /// The service's clock (`Date`) when it responded, else this machine's.
    pub server_time: Timestamp,
}

/// A page of the ticket listing.
#[derive(Clone, Debug)]
pub struct TicketPage {
    items: Items,
    /// The limit that the service repeated.
    pub limit: Option<u64>,
    /// The offset that the service repeated.
    pub offset: Option<u64>,
    /// The number of tickets, if the service says it.
    pub total_count: Option<u64>,
    /// The service's clock (`Date`) when it responded, else this machine's.
    pub server_time: Timestamp,
}

/// A body that is not a page. The message names fields and types, never data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PageError {
    message: String,
    is_truncated: bool,
}

/// The items of a page as JSON that is not parsed, so that a bad one hides no other.
#[derive(Clone, Debug)]
pub struct Items {
    body: String,
    /// Where each item is in the body.
    ranges: Vec<Range<usize>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawAuditPage<'a> {
    #[serde(borrow)]
    items: Bounded<&'a RawValue, MAX_ITEMS>,
    #[serde(default)]
    start_cursor: Option<Cursor>,
    #[serde(default)]
    end_cursor: Option<Cursor>,
    #[serde(borrow, default)]
    has_previous: Option<&'a RawValue>,
    #[serde(borrow, default)]
    has_more: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTicketPage<'a> {
    #[serde(borrow)]
    items: Bounded<&'a RawValue, MAX_ITEMS>,
    // Only hints for paging: one of another type counts as missing.
    #[serde(borrow, default)]
    limit: Option<&'a RawValue>,
    #[serde(borrow, default)]
    offset: Option<&'a RawValue>,
    #[serde(borrow, default)]
    total_count: Option<&'a RawValue>,
}

// === impl AuditPage ===

impl AuditPage {
    /// Parses a page. The second value is the number of its own fields that the specification does not document.
    ///
    /// # Errors
    /// Returns an error if the body is not such a page.
    pub fn parse(body: String, server_time: Timestamp) -> Result<(Self, u64), PageError> {
        let (page, unknown) = read::<RawAuditPage<'_>>(&body)?;
        let is_true = |flag: Option<&RawValue>| flag.is_some_and(|flag| flag.get() == "true");
        let page = Self {
            start_cursor: page.start_cursor,
            end_cursor: page.end_cursor,
            has_previous: is_true(page.has_previous),
            has_more: is_true(page.has_more),
            server_time,
            items: Items {
                ranges: Items::find(&body, &page.items)?,
                body,
            },
        };
        Ok((page, unknown))
    }
}

impl Deref for AuditPage {
    type Target = Items;

    fn deref(&self) -> &Items {
        &self.items
    }
}

// === impl TicketPage ===

impl TicketPage {
    /// Parses a page. The second value is the number of its own fields that the specification does not document.
    ///
    /// # Errors
    /// Returns an error if the body is not such a page.
    pub fn parse(body: String, server_time: Timestamp) -> Result<(Self, u64), PageError> {
        let (page, unknown) = read::<RawTicketPage<'_>>(&body)?;
        let page = Self {
            limit: whole(page.limit),
            offset: whole(page.offset),
            total_count: whole(page.total_count),
            server_time,
            items: Items {
                ranges: Items::find(&body, &page.items)?,
                body,
            },
        };
        Ok((page, unknown))
    }
}

impl Deref for TicketPage {
    type Target = Items;

    fn deref(&self) -> &Items {
        &self.items
    }
}

// === impl PageError ===

impl PageError {
    /// Returns whether the body ends early.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Describes why a body could not be parsed. serde's own message may contain data.
    fn new(body: &str, error: Option<&serde_json::Error>) -> Self {
        let mut items = None;
        let mut cursor = None;
        let fields = each_field(body, |name, value| match name {
            "items" => items = Some(kind(value)),
            "startCursor" | "endCursor" if !matches!(kind(value), "a string" | "null") => {
                cursor = Some(format!("{name} is {} instead of a string", kind(value)));
            }
            _ => {}
        });
        let message = match (fields, items) {
            _ if kind(body) != "an object" => {
                format!("the body is {} instead of an object", kind(body))
            }
            (Err(error), _) => format!(
                "invalid JSON at line {} column {}",
                error.line(),
                error.column()
            ),
            (Ok(()), None) => "items is missing".to_owned(),
            (Ok(()), Some("an array")) => cursor.unwrap_or("a field occurs twice".to_owned()),
            (Ok(()), Some(kind)) => format!("items is {kind} instead of an array"),
        };
        Self {
            message,
            is_truncated: error.is_some_and(serde_json::Error::is_eof),
        }
    }
}

// === impl Items ===

impl Items {
    /// Returns the JSON of the items in the order of the page.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.ranges.iter().map(|range| &self.body[range.clone()])
    }

    /// Returns the JSON of one item, empty if there is none.
    pub fn item(&self, index: usize) -> &str {
        let range = self.ranges.get(index).cloned();
        &self.body[range.unwrap_or_default()]
    }

    /// Returns the whole body.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether the page has no items.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the size of the body in bytes.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Finds the items in the body. A borrowed raw value is a slice of it.
    fn find(
        body: &str,
        items: &Bounded<&RawValue, MAX_ITEMS>,
    ) -> Result<Vec<Range<usize>>, PageError> {
        if items.more {
            return Err(PageError {
                message: format!("items has more than {MAX_ITEMS} items"),
                is_truncated: false,
            });
        }
        let start = body.as_ptr() as usize;
        let range = |item: &&RawValue| {
            let offset = item.get().as_ptr() as usize - start;
            offset..offset + item.get().len()
        };
        Ok(items.items.iter().map(range).collect())
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<(T, u64), PageError> {
    // serde would read an array as the fields in their order.
    if kind(body) != "an object" {
        return Err(PageError::new(body, None));
    }
    let mut unknown = 0;
    let mut deserializer = serde_json::Deserializer::from_str(body);
    serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)
        .and_then(|page| deserializer.end().map(|()| page))
        .map(|page| (page, unknown))
        .map_err(|error| PageError::new(body, Some(&error)))
}

/// Parses a count. A negative or fractional number is not one.
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
    fn a_page_with_too_many_items_is_an_error() {
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
            error
                .to_string()
                .contains("items has more than 100000 items"),
            "{error}"
        );
    }

    #[test]
    fn an_error_names_the_field_and_the_type_and_no_data() {
        let long = "secret ".repeat(300_000);
        for (body, message) in [
            ("{}".to_owned(), "items is missing"),
            (
                r#"{"items":null}"#.to_owned(),
                "items is null instead of an array",
            ),
            (
                format!(r#"{{"items":"{long}"}}"#),
                "items is a string instead of an array",
            ),
            (
                format!(r#"{{"items":[],"endCursor":{{"{long}":1}}}}"#),
                "endCursor is an object instead of a string",
            ),
            (
                "[[]]".to_owned(),
                "the body is an array instead of an object",
            ),
            (
                long.clone(),
                "the body is invalid JSON instead of an object",
            ),
            (
                r#"{"items":[],"items":[]}"#.to_owned(),
                "a field occurs twice",
            ),
            (
                r#"{"items":[secret]}"#.to_owned(),
                "invalid JSON at line 1 column 11",
            ),
        ] {
            let error = AuditPage::parse(body, Timestamp::UNIX_EPOCH).expect_err(message);
            assert_eq!(
                (&*error.to_string(), error.is_truncated()),
                (message, false)
            );
        }
        let cut = r#"{"items":[{"id":"a"#.to_owned();
        let error = AuditPage::parse(cut, Timestamp::UNIX_EPOCH).expect_err("cut");
        assert!(error.is_truncated());
    }

    #[test]
    fn no_value_of_an_item_fails_the_page() {
        let items = [
            r#"{"id":"Launch \ud83d"}"#,
            r#"{"id":1e400}"#,
            r#"{"id":[[]]}"#,
        ];
        let body = format!(r#"{{"items":[{}],"hasMore":"yes"}}"#, items.join(","));
        let (page, _) = AuditPage::parse(body, Timestamp::UNIX_EPOCH).expect("a page");
        assert_eq!(page.items().collect::<Vec<_>>(), items);
    }

    #[test]
    fn a_negative_total_counts_as_missing() {
        let (page, _) = TicketPage::parse(
            r#"{"items":[],"limit":100,"offset":0,"totalCount":-1}"#.to_owned(),
            Timestamp::UNIX_EPOCH,
        )
        .expect("valid");
        assert_eq!((page.limit, page.total_count), (Some(100), None));
    }

    #[test]
    fn a_count_of_another_type_counts_as_missing() {
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
