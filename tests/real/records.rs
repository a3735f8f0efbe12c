//! The dashboard of the log records on the store that it was written for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::files::{array, text, yaml};
use crate::support::parts::VictoriaLogs;
use crate::support::scrape::actor;
use crate::{organization, sending};

/// Returns the query for VictoriaLogs as Grafana sends it: a choice of several values is a regular expression. The query has no `format if`:
/// behind one, filters of version 1.110 miss records.
fn query(organization: &str, activity: &str, actor: &str) -> String {
    let dashboard = yaml("dashboards/organization-records.json");
    let rows = array(&dashboard["panels"]).iter();
    let mut panels = rows.flat_map(|row| array(&row["panels"]));
    let panel = panels.find(|panel| panel["title"] == "Records in VictoriaLogs");
    let query = text(&panel.unwrap()["targets"][0]["expr"]);
    let query = query.replace("${organization_of:regex}", organization);
    let query = query.replace("${activity_type:regex}", activity);
    query.replace("${actor:regex}", actor)
}

#[tokio::test]
#[ignore = "needs VictoriaLogs"]
async fn victoria_logs_shows_the_selected_records() {
    let logs = VictoriaLogs::start().await;
    let simulator = organization(100, 0).await;
    let _exporter = sending(&simulator, "http/protobuf", &logs.endpoint()).start();
    logs.finds(&query("4711", ".*", ".*"), 100).await;
    let (mut types, mut actors) = (BTreeMap::new(), BTreeMap::new());
    for served in simulator.entries() {
        *types.entry(served.activity_type).or_insert(0) += 1;
        *actors.entry(actor(served.actor)).or_insert(0) += 1;
    }
    assert!(actors.contains_key("none"), "{actors:?}");
    for (activity, count) in types {
        let records = logs.finds(&query("4711", &activity, ".*"), count).await;
        let is_named = |record: &Value| text(&record["_msg"]).starts_with(&activity);
        assert!(records.iter().all(is_named), "{activity}: {records:?}");
    }
    for (actor, count) in actors {
        logs.finds(&query("4711", ".*", &actor), count).await;
    }
    logs.finds(&query("none", ".*", ".*"), 0).await;
}
