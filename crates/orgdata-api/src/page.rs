//! Pages of both listings (specification, sections 2.2 and 2.3): a body, and where its items are in it.

use std::ops::{Deref, Range};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::json::{Bounded, NumberText};

/// The maximum number of items of a page: many times what may be requested (specification, section 8).
const MAX_ITEMS: usize = 100_000;

/// A page of a listing. The items are JSON that is not parsed, so that a bad one hides no other. `F` are the fields
/// beside them.
#[derive(Clone, Debug)]
pub struct Page<F> {
    body: Arc<String>,
    /// The position of each item in the body.
    items: Vec<Range<usize>>,
    fields: F,
    /// The API's clock (`Date`) when it responded, else this machine's.
    pub server_time: Timestamp,
}

/// A page of the audit log listing, newest entry first.
pub type AuditPage = Page<AuditFields>;

/// A page of the ticket listing.
pub type TicketPage = Page<TicketFields>;

/// The fields of a page of the audit log listing. `startCursor` and `hasPrevious` are not read.
#[derive(Clone, Debug)]
pub struct AuditFields {
    /// The cursor for older entries. Missing, null and empty are all `None`: an empty one would be the first page.
    pub end_cursor: Option<String>,
    /// There are older entries. Anything but `true` is no promise.
    pub has_more: bool,
}

/// The fields of a page of the ticket listing.
#[derive(Clone, Debug)]
pub struct TicketFields {
    /// The limit as the API repeated it.
    pub limit: Option<u64>,
    /// The number of tickets, if the API sends it.
    pub total_count: Option<u64>,
}

/// The items of a page; `None` if they are null.
type Items<'a> = Option<Bounded<&'a RawValue, MAX_ITEMS>>;

/// The fields that are read of either listing, as written. `T` is what `items` are read as.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
struct Raw<'a, T> {
    /// `None` only if it is missing.
    #[serde(default, deserialize_with = "also_null")]
    items: Option<T>,
    #[serde(borrow)]
    end_cursor: Option<&'a RawValue>,
    has_more: Option<&'a RawValue>,
    limit: Option<&'a RawValue>,
    total_count: Option<&'a RawValue>,
}

// === impl Page ===

impl Page<AuditFields> {
    /// Parses a page of the audit log listing. `date` is the API's clock.
    ///
    /// # Errors
    /// Returns why the body is not a page. The message names fields and types, never data.
    pub fn parse(body: String, date: Option<Timestamp>) -> Result<Self, String> {
        parse(body, date, |raw| {
            let cursor = raw.end_cursor.map_or("null", RawValue::get);
            let end_cursor: Option<String> = serde_json::from_str(cursor)
                .map_err(|_| mismatch("endCursor", cursor, "a string"))?;
            Ok(AuditFields {
                end_cursor: end_cursor.filter(|cursor| !cursor.is_empty()),
                has_more: raw.has_more.is_some_and(|more| more.get() == "true"),
            })
        })
    }
}

impl Page<TicketFields> {
    /// Parses a page of the ticket listing. `date` is the API's clock.
    ///
    /// # Errors
    /// Returns why the body is not a page. The message names fields and types, never data.
    pub fn parse(body: String, date: Option<Timestamp>) -> Result<Self, String> {
        // They are only hints: one of another type counts as missing.
        let count = |raw: Option<&RawValue>| {
            let number: NumberText<'_> = serde_json::from_str(raw?.get()).ok()?;
            number.as_count()
        };
        parse(body, date, |raw| {
            Ok(TicketFields {
                limit: count(raw.limit),
                total_count: count(raw.total_count),
            })
        })
    }
}

impl<F> Page<F> {
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

impl<F> Deref for Page<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fields
    }
}

/// Parses a page of either listing. serde's own messages may contain data and are not shown.
fn parse<F>(
    body: String,
    date: Option<Timestamp>,
    fields: impl FnOnce(&Raw<'_, Items<'_>>) -> Result<F, String>,
) -> Result<Page<F>, String> {
    // serde would read an array as the fields in their order.
    if kind(&body) != "an object" {
        return Err(mismatch("the body", &body, "an object"));
    }
    let raw: Raw<'_, Items<'_>> =
        serde_json::from_str(&body).map_err(|error| problem(&body, &error))?;
    let Some(items) = &raw.items else {
        return Err(mismatch("items", "", "an array"));
    };
    let (items, more) = match items {
        Some(array) => (array.items.as_slice(), array.more),
        None => (&[][..], false),
    };
    if more {
        return Err(format!("items has more than {MAX_ITEMS} items"));
    }
    // A borrowed raw value is a slice of the body. Without items there is nothing to find in it.
    let range = |item: &&RawValue| {
        let offset = item.get().as_ptr() as usize - body.as_ptr() as usize;
        offset..offset + item.get().len()
    };
    Ok(Page {
        items: items.iter().map(range).collect(),
        fields: fields(&raw)?,
        server_time: date.unwrap_or_else(Timestamp::now),
        body: Arc::new(body),
    })
}

/// Returns why a body is not a page.
fn problem(body: &str, error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!("it was cut off after {} bytes", body.len()),
        Category::Data => match serde_json::from_str::<Raw<'_, &RawValue>>(body) {
            Ok(raw) => mismatch("items", raw.items.map_or("", RawValue::get), "an array"),
            Err(_) => "a field occurs twice".to_owned(),
        },
        _ => format!(
            "invalid JSON at line {} column {}",
            error.line(),
            error.column()
        ),
    }
}

/// Reads a value also if it is null, which would be missing otherwise.
fn also_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn mismatch(field: &str, json: &str, expected: &str) -> String {
    format!("{field} is {} instead of {expected}", kind(json))
}

/// Returns the kind of a JSON value with its article, for messages that must not show the value.
fn kind(json: &str) -> &'static str {
    match json.trim_start().as_bytes().first() {
        None => "missing",
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
    fn null_is_an_empty_page_and_an_empty_cursor_the_end_of_the_listing() {
        for (body, items) in [
            (r#"{"items":[1]}"#, 1),
            (r#"{"items":[1],"endCursor":null,"hasMore":1}"#, 1),
            (r#"{"items":[1],"endCursor":"","hasMore":"true"}"#, 1),
            (r#"{ "items" : null , "totalCount":0}"#, 0),
        ] {
            let page = AuditPage::parse(body.to_owned(), None).expect(body);
            let found = (page.len(), &page.end_cursor, page.has_more);
            assert_eq!(found, (items, &None, false), "{body}");
        }
    }

    #[test]
    fn a_page_with_too_many_items_is_an_error() {
        let parse = |items: usize| {
            let body = format!(r#"{{"items":[{}0]}}"#, "0,".repeat(items - 1));
            AuditPage::parse(body, None)
        };
        assert_eq!(parse(MAX_ITEMS).expect("valid").len(), MAX_ITEMS);
        let error = parse(MAX_ITEMS + 1).expect_err("too many");
        assert_eq!(error, "items has more than 100000 items");
    }

    #[test]
    fn an_error_names_the_field_and_the_type_and_no_data() {
        let long = "secret ".repeat(300_000);
        for line in [
            "{} => items is missing instead of an array",
            "null => the body is null instead of an object",
            r#"{"items":"LONG"} => items is a string instead of an array"#,
            r#"{"items":[],"endCursor":{"LONG":1}} => endCursor is an object instead of a string"#,
            "[[]] => the body is an array instead of an object",
            "LONG => the body is invalid JSON instead of an object",
            r#"{"items":[],"items":[]} => a field occurs twice"#,
            r#"{"items":[secret]} => invalid JSON at line 1 column 11"#,
        ] {
            let (body, message) = line.split_once(" => ").expect(line);
            let error = AuditPage::parse(body.replace("LONG", &long), None);
            assert_eq!(error.expect_err(line), message);
        }
    }

    #[test]
    fn a_count_of_another_type_counts_as_missing() {
        for odd in ["-1", "\"7\"", "null", "true", "{}"] {
            let body = format!(r#"{{"items":[{{"id":1}}],"limit":{odd},"totalCount":{odd}}}"#);
            let page = TicketPage::parse(body, None).expect(odd);
            let counts = (page.len(), page.limit, page.total_count);
            assert_eq!(counts, (1, None, None), "{odd}");
        }
    }
}
