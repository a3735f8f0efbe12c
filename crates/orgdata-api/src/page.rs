//! Pages of both listings (specification, sections 2.2 and 2.3): a body, and where its items are in it.

use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bounded::Bounded;
use super::number::NumberText;

/// The maximum number of items of a page: many times what may be requested (specification, section 8).
const MAX_ITEMS: usize = 100_000;

/// A page of a listing. The items are JSON that is not parsed, so that a bad one hides no other.
#[derive(Clone, Debug)]
pub struct Page {
    body: Arc<String>,
    /// The position of each item in the body.
    items: Vec<Range<usize>>,
    /// The cursor for newer entries (audit logs).
    pub start_cursor: Option<String>,
    /// The cursor for older entries (audit logs).
    pub end_cursor: Option<String>,
    /// The limit that the service repeated (tickets).
    pub limit: Option<u64>,
    /// The number of tickets, if the service says it.
    pub total_count: Option<u64>,
    /// The service's clock (`Date`) when it responded, else this machine's.
    pub server_time: Timestamp,
    /// Whether the service sent its clock.
    pub has_date: bool,
    /// The number of fields, not those of the items, that the specification does not document.
    pub unknown_fields: u64,
}

/// A page of the audit log listing.
pub type AuditPage = Page;

/// A page of the ticket listing.
pub type TicketPage = Page;

/// Why a body is not a page. The message names fields and types, never data.
#[derive(Debug)]
pub struct PageError {
    pub(super) message: String,
    /// Whether the body ends early.
    pub(super) is_truncated: bool,
}

/// Every documented field of both listings.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "some only count as known")]
struct Raw<'a> {
    #[serde(borrow)]
    items: Bounded<&'a RawValue, MAX_ITEMS>,
    end_cursor: Option<String>,
    // The others are only hints for paging: one of another type counts as missing.
    start_cursor: Option<&'a RawValue>,
    has_previous: Option<&'a RawValue>,
    has_more: Option<&'a RawValue>,
    limit: Option<&'a RawValue>,
    offset: Option<&'a RawValue>,
    total_count: Option<&'a RawValue>,
}

/// The fields that must have their type, as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(borrow)]
    items: &'a RawValue,
    end_cursor: Option<&'a RawValue>,
}

// === impl Page ===

impl Page {
    /// Parses a page. `date` is the service's clock.
    ///
    /// # Errors
    /// Returns an error if the body is not a page.
    pub fn parse(body: String, date: Option<Timestamp>) -> Result<Self, PageError> {
        let malformed = |message| PageError {
            message,
            is_truncated: false,
        };
        // serde would read an array as the fields in their order.
        let kind = kind(&body);
        if kind != "an object" {
            let message = format!("the body is {kind} instead of an object");
            return Err(malformed(message));
        }
        let mut unknown_fields = 0;
        let mut deserializer = serde_json::Deserializer::from_str(&body);
        let raw: Raw<'_> = serde_ignored::deserialize(&mut deserializer, |_| unknown_fields += 1)
            .and_then(|page| deserializer.end().map(|()| page))
            .map_err(|error| PageError {
                message: describe(&body),
                is_truncated: error.is_eof(),
            })?;
        if raw.items.more {
            return Err(malformed(format!("items has more than {MAX_ITEMS} items")));
        }
        // A borrowed raw value is a slice of the body.
        let range = |item: &&RawValue| {
            let offset = item.get().as_ptr() as usize - body.as_ptr() as usize;
            offset..offset + item.get().len()
        };
        let count = |raw: Option<&RawValue>| {
            let number: NumberText<'_> = serde_json::from_str(raw?.get()).ok()?;
            number.as_count()
        };
        let start_cursor = raw.start_cursor.map(RawValue::get);
        Ok(Self {
            items: raw.items.items.iter().map(range).collect(),
            start_cursor: start_cursor.and_then(|cursor| serde_json::from_str(cursor).ok()),
            // Some services write an empty text for none, and read one as none: the first page.
            end_cursor: raw.end_cursor.filter(|cursor| !cursor.is_empty()),
            limit: count(raw.limit),
            total_count: count(raw.total_count),
            server_time: date.unwrap_or_else(Timestamp::now),
            has_date: date.is_some(),
            unknown_fields,
            body: Arc::new(body),
        })
    }

    /// Returns the JSON of the items in the order of the page.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.items.iter().map(|range| &self.body[range.clone()])
    }

    /// Returns the JSON of one item, empty if there is none.
    pub fn item(&self, index: usize) -> &str {
        &self.body[self.position(index)]
    }

    /// Returns where an item is in the body; an empty range if there is none.
    pub fn position(&self, index: usize) -> Range<usize> {
        self.items.get(index).cloned().unwrap_or_default()
    }

    /// Returns the whole body.
    pub fn body(&self) -> &Arc<String> {
        &self.body
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the page has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Describes why an object could not be parsed. serde's own message may contain data.
fn describe(body: &str) -> String {
    let written: Written<'_> = match serde_json::from_str(body) {
        Ok(written) => written,
        Err(error) if !error.is_data() => {
            let (line, column) = (error.line(), error.column());
            return format!("invalid JSON at line {line} column {column}");
        }
        Err(error) if error.to_string().starts_with("missing") => {
            return "items is missing".to_owned();
        }
        Err(_) => return "a field occurs twice".to_owned(),
    };
    let cursor = written.end_cursor.map(|cursor| kind(cursor.get()));
    match (kind(written.items.get()), cursor) {
        ("an array", None | Some("a string")) => "a field occurs twice".to_owned(),
        ("an array", Some(kind)) => format!("endCursor is {kind} instead of a string"),
        (kind, _) => format!("items is {kind} instead of an array"),
    }
}

/// Returns the kind of a JSON value with its article, for messages that must not show the value.
fn kind(json: &str) -> &'static str {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "invalid JSON",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_slices_of_the_body_in_its_order() {
        let body = r#"{"items":[ {"a": 1}, "odd" ,3],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":true,"new":1}"#;
        let page = Page::parse(body.to_owned(), None).expect("valid");
        assert_eq!(
            page.items().collect::<Vec<_>>(),
            [r#"{"a": 1}"#, "\"odd\"", "3"]
        );
        assert_eq!(
            (page.end_cursor.as_deref(), page.unknown_fields),
            (Some("e"), 1)
        );
    }

    #[test]
    fn an_empty_cursor_is_the_end_of_the_listing() {
        for cursor in ["", r#","endCursor":null"#, r#","endCursor":"""#] {
            let page = Page::parse(format!(r#"{{"items":[1]{cursor}}}"#), None).expect("valid");
            assert_eq!(page.end_cursor, None, "{cursor}");
        }
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
            Page::parse(body(MAX_ITEMS), None).expect("valid").len(),
            MAX_ITEMS
        );
        let error = Page::parse(body(MAX_ITEMS + 1), None).expect_err("too many");
        assert!(
            error.message.contains("items has more than 100000 items"),
            "{error:?}"
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
            let error = Page::parse(body, None).expect_err(message);
            assert_eq!((&*error.message, error.is_truncated), (message, false));
        }
        let cut = r#"{"items":[{"id":"a"#.to_owned();
        let error = Page::parse(cut, None).expect_err("cut");
        assert!(error.is_truncated);
    }

    #[test]
    fn no_value_of_an_item_fails_the_page() {
        let items = [
            r#"{"id":"Launch \ud83d"}"#,
            r#"{"id":1e400}"#,
            r#"{"id":[[]]}"#,
        ];
        let body = format!(r#"{{"items":[{}],"hasMore":"yes"}}"#, items.join(","));
        let page = Page::parse(body, None).expect("a page");
        assert_eq!(page.items().collect::<Vec<_>>(), items);
    }

    #[test]
    fn a_negative_total_counts_as_missing() {
        let page = Page::parse(
            r#"{"items":[],"limit":100,"offset":0,"totalCount":-1}"#.to_owned(),
            None,
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
            let page = Page::parse(body, None).expect(odd);
            assert_eq!(
                (page.len(), page.limit, page.total_count),
                (1, None, None),
                "{odd}"
            );
        }
    }
}
