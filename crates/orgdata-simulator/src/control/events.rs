//! Control of the audit log: new entries, late ones, and those that go.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::patch::Fields;
use super::super::server::Server;
use super::input::{Done, Given, Refused, duration, time};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Add {
    count: Option<u64>,
    created_at: Option<String>,
    entries: Option<Vec<Map<String, Value>>>,
    #[serde(default)]
    unchecked: bool,
    #[serde(default)]
    omit: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Late {
    count: u64,
    behind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retention {
    keep: Option<u64>,
    within: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    drop: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

pub(super) async fn add(State(server): State<Server>, Given(add): Given<Add>) -> Done {
    if add.count.is_none() && add.entries.is_none() {
        return Err(Refused::field("count", "give count, entries or both"));
    }
    let mut entries: Vec<Fields> = Vec::new();
    for values in add.entries.into_iter().flatten() {
        let fields = Fields {
            values,
            omitted: add.omit.clone(),
            unchecked: add.unchecked,
        };
        fields.check_entry()?;
        entries.push(fields);
    }
    match (add.count, add.created_at) {
        (Some(count), Some(at)) => {
            let at = time("createdAt", &at)?;
            entries.extend((0..count).map(|_| Fields::new().with("createdAt", format!("{at:.3}"))));
        }
        (Some(count), None) => server.sim.add_events(count),
        (None, Some(_)) => {
            return Err(Refused::field(
                "createdAt",
                "goes with count; an entry has its own",
            ));
        }
        (None, None) => {}
    }
    let mut ids = Vec::with_capacity(entries.len());
    for fields in &entries {
        ids.push(server.sim.add_entry(fields)?);
    }
    Ok(Json(
        json!({ "ids": ids, "total": server.sim.event_count(), "mark": server.sim.mark().to_string() }),
    ))
}

pub(super) async fn late(State(server): State<Server>, Given(late): Given<Late>) -> Done {
    server
        .sim
        .add_late(late.count, duration("behind", &late.behind)?);
    Ok(Json(
        json!({ "total": server.sim.event_count(), "mark": server.sim.mark().to_string() }),
    ))
}

pub(super) async fn retention(
    State(server): State<Server>,
    Given(retention): Given<Retention>,
) -> Done {
    let removed = match (retention.keep, retention.within) {
        (Some(keep), None) => server.sim.retain(keep),
        (None, Some(within)) => server.sim.retain_within(duration("within", &within)?),
        _ => return Err(Refused::field("keep", "give either keep or within")),
    };
    Ok(Json(
        json!({ "removed": removed, "total": server.sim.event_count() }),
    ))
}

pub(super) async fn restore(State(server): State<Server>, Given(restore): Given<Restore>) -> Done {
    let removed = server.sim.restore(restore.drop);
    Ok(Json(
        json!({ "removed": removed, "total": server.sim.event_count() }),
    ))
}

pub(super) async fn clear(State(server): State<Server>, Given(Nothing {}): Given<Nothing>) -> Done {
    server.sim.clear_events();
    Ok(Json(json!({ "total": server.sim.event_count() })))
}
