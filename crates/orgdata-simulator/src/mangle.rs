//! What faults make of a page and its items.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::fault::FaultKind;
use super::query::{Issues, Query};

/// Changes the items of a page as a fault says.
pub(super) fn change_items(kind: &FaultKind, items: &mut Vec<String>) {
    use FaultKind as Kind;
    match kind {
        Kind::EmptyPage(_) | Kind::ExpiredCursorEmpty => items.clear(),
        Kind::UnknownFields => {
            for item in items {
                edit(item, add_fields);
            }
        }
        Kind::WrongTypes => edit_first(items, |item| {
            for (field, value) in [
                ("occurredAt", json!(12345)),
                ("createdAt", json!({})),
                ("actorUser", json!("someone")),
            ]
            .into_iter()
            .chain([("dealId", json!("five")), ("metadata", json!([1, 2]))])
            .chain([
                ("dealAmountSum", json!("12,50")),
                ("linkedDeals", json!({ "id": 1 })),
                ("state", json!(7)),
            ]) {
                if item.contains_key(field) {
                    item.insert(field.to_owned(), value);
                }
            }
        }),
        Kind::MissingId => edit_first(items, |item| {
            item.shift_remove("id");
        }),
        Kind::NotAnObject => {
            if let Some(first) = items.first_mut() {
                "\"not an object\"".clone_into(first);
            }
        }
        Kind::Duplicate => {
            if let Some(first) = items.first().cloned() {
                items.insert(0, first);
            }
        }
        _ => {}
    }
}

/// Changes the body of a page as a fault says.
pub(super) fn change_body(kind: &FaultKind, body: &mut String) {
    match kind {
        FaultKind::UnknownFields => {
            body.pop();
            body.push_str(",\"generatedBy\":{\"node\":7},\"warnings\":[]}");
        }
        FaultKind::Oversized(bytes) => {
            let missing = usize::try_from(*bytes)
                .unwrap_or(usize::MAX)
                .saturating_sub(body.len());
            body.pop();
            body.push_str(&" ".repeat(missing));
            body.push('}');
        }
        _ => {}
    }
}

/// The body of a refused cursor: the validation error where the status is that of one, a message otherwise.
pub(super) fn refused_cursor(status: StatusCode, query: &Query) -> String {
    if status != StatusCode::BAD_REQUEST {
        return json!({ "message": "The cursor has expired" }).to_string();
    }
    let mut issues = Issues::default();
    for (name, value) in query
        .pairs()
        .iter()
        .filter(|(name, _)| name == "before" || name == "after")
    {
        issues.add(
            name,
            "invalid_cursor",
            "Malformed or expired cursor",
            json!(value),
            &[],
        );
    }
    issues.body().unwrap_or_default()
}

/// Fields that the specification does not name, in an item and in its nested objects.
fn add_fields(item: &mut Map<String, Value>) {
    for (_, nested) in item.iter_mut().filter(|(name, _)| *name != "metadata") {
        if let Value::Object(nested) = nested {
            nested.insert("futureField".to_owned(), json!(true));
        }
    }
    item.insert(
        "futureField".to_owned(),
        json!({ "nested": [1, "zwei", null] }),
    );
    item.insert("anotherNewField".to_owned(), Value::Null);
}

fn edit_first(items: &mut [String], change: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(first) = items.first_mut() {
        edit(first, change);
    }
}

fn edit(item: &mut String, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Ok(Value::Object(mut map)) = serde_json::from_str(item) {
        change(&mut map);
        *item = Value::Object(map).to_string();
    }
}
