//! `organization-activity.json`: what the organization does, for the people who run it.

use serde_json::json;

use super::model::{
    Dashboard, Panel, ZERO, ZERO_TICKETS, bars, gauges, heading, label_variable, lines, logs, stat,
    table, text_variable,
};

/// The events that are chosen.
const EVENTS: &str =
    r#"orgdata_audit_events_total{@,activity_type=~"$activity_type",actor=~"$actor"}"#;

/// Events in each bar. A series is rounded by itself: `increase()` extrapolates, and most series rise by one.
const IN_A_BAR: &str = "round(increase(EVENTS[$__rate_interval]))";

/// Events in the time range.
const IN_RANGE: &str = "round(increase(EVENTS[$__range]))";

/// At night, or on a Saturday or Sunday.
const UNUSUAL: &str = "(hour() < $quiet_until or hour() >= $quiet_from or day_of_week() % 6 == 0)";

/// The same for the hour that ended now.
const UNUSUAL_HOUR: &str = "(hour(vector(time() - 3600)) < $quiet_until or hour(vector(time() - 3600)) >= $quiet_from \
                            or day_of_week(vector(time() - 3600)) % 6 == 0)";

/// Fills in the constants.
fn query(text: &str) -> String {
    [
        ("IN_A_BAR", IN_A_BAR),
        ("IN_RANGE", IN_RANGE),
        ("EVENTS", EVENTS),
        ("UNUSUAL_HOUR", UNUSUAL_HOUR),
        ("UNUSUAL", UNUSUAL),
        ("ZERO_TICKETS", ZERO_TICKETS),
        ("ZERO", ZERO),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        uid: "organization-activity",
        title: "Organization activity",
        description: "Audit events and tickets of one organization, as orgdata-exporter has read them. Hours are UTC where a panel says so.",
        from: "now-24h",
        variables: vec![
            label_variable(
                "activity_type",
                "Activity",
                "label_values(orgdata_audit_events_total{job=~\"$job\",instance=~\"$instance\"}, activity_type)",
                ".*",
            ),
            label_variable(
                "actor",
                "Actor",
                "label_values(orgdata_audit_events_total{job=~\"$job\",instance=~\"$instance\"}, actor)",
                ".*",
            ),
            text_variable(
                "quiet_from",
                "Quiet from (UTC hour)",
                "20",
                "Events from this hour on are at an unusual time, and those on Saturday and Sunday.",
            ),
            text_variable(
                "quiet_until",
                "Quiet until (UTC hour)",
                "6",
                "Events before this hour are at an unusual time.",
            ),
            text_variable(
                "loki",
                "Loki",
                "loki",
                "Name or uid of the Loki data source with the audit records.",
            ),
        ],
        panels: [events(), hours(), tickets()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn events() -> Vec<Panel> {
    vec![
        heading("Audit events"),
        stat("Events", "locale", "Audit events in the selected time range, of the chosen activities and actors.")
            .now(&query("sum(IN_RANGE) or on () ZERO"), "Events"),
        stat("Active people", "locale", "Actors with at least one event in the selected time range.").now(
            &query(r#"count(sum by (actor) (round(increase(orgdata_audit_events_total{@,activity_type=~"$activity_type",actor=~"$actor",actor!~"none|other"}[$__range]))) > 0) or on () ZERO"#),
            "People",
        ),
        stat("Since the last event", "s", "How long ago the newest audit entry was created that the exporter has read, of whatever activity.")
            .now(&query("time() - max(orgdata_audit_newest_event_timestamp_seconds{@}) or on () ZERO"), "Since"),
        stat("At unusual hours", "locale", "Events in the selected time range in the quiet hours (UTC) or on Saturday or Sunday, hour by hour.")
            .now(&query("sum(sum_over_time((sum(round(increase(EVENTS[1h]))) and on () UNUSUAL_HOUR)[$__range:1h])) or on () ZERO"), "Events"),
        stat("Holes in the trail", "locale", "Gaps in the selected time range: entries that the service lost before they could be read.")
            .now(&query("sum(round(increase(orgdata_audit_gaps_total{@}[$__range]))) or on () ZERO"), "Gaps")
            .steps(&[(1.0, "red")]),
        stat("Exporter", "short", "Whether all loops of the exporter work; more on the dashboard Exporter health.")
            .now("min(orgdata_up{@})", "Exporter")
            .words(&[("0", "a loop fails", "red"), ("1", "works", "green")])
            .absent("no exporter"),
        bars("Events over time by activity", "short", "Audit events by activity type, whole numbers in each bar. Bars are five minutes or longer.")
            .size(14, 10)
            .query(&query("sum by (activity_type) (IN_A_BAR) or on () ZERO"), "{{activity_type}}"),
        logs(
            "Audit records",
            "The records behind the graphs, from Loki, where a collector has written them: those of the chosen activities, newest first. \
             The box Loki on top takes the name or uid of the data source.",
        )
        .records(
            "{service_name=\"orgdata-exporter\"} | orgdata_activity_type=~\"$activity_type\" | line_format \
             \"{{.orgdata_activity_type}}  {{.user_full_name}}  {{.orgdata_deal_name}}  {{.orgdata_evaluation_title}}\"",
        ),
        table("Most active people", "locale", "Actors with the most events in the selected time range. A name needs --metrics.actor-label=id; none is an event without an actor, other is one beyond --metrics.max-actors.")
            .rows(&query(
                r#"topk(15, sum by (actor, name) (
                     (sum by (job, instance, actor) (IN_RANGE) * on (job, instance, actor) group_left (name) orgdata_audit_actor_info{@})
                     or (sum by (job, instance, actor) (IN_RANGE) unless on (job, instance, actor) orgdata_audit_actor_info{@})
                   ) > 0) or on () ZERO"#,
            ))
            .columns(&[("name", "Name"), ("actor", "Actor"), ("Value", "Events")])
            .set("/options/sortBy", json!([{ "displayName": "Events", "desc": true }])),
        table("Activities", "locale", "Events by activity type in the selected time range.")
            .rows(&query("sort_desc(sum by (activity_type) (IN_RANGE) > 0) or on () ZERO"))
            .columns(&[("activity_type", "Activity"), ("Value", "Events")])
            .set("/options/sortBy", json!([{ "displayName": "Events", "desc": true }])),
        table("Who at unusual hours", "locale", "Actors with events in the quiet hours (UTC) or on Saturday or Sunday, in the selected time range, hour by hour.")
            .rows(&query(
                "topk(15, sum by (actor) (sum_over_time((sum by (actor) (round(increase(EVENTS[1h]))) and on () UNUSUAL_HOUR)[$__range:1h])) > 0) or on () ZERO",
            ))
            .columns(&[("actor", "Actor"), ("Value", "Events")])
            .set("/options/sortBy", json!([{ "displayName": "Events", "desc": true }])),
    ]
}

fn hours() -> Vec<Panel> {
    vec![
        bars("Usual and unusual hours", "short", "Events in working hours, and those in the quiet hours (UTC, set on top) or on Saturday or Sunday.")
            .query(&query("(sum(IN_A_BAR) unless on () UNUSUAL) or on () ZERO"), "usual hours")
            .query(&query("(sum(IN_A_BAR) and on () UNUSUAL) or on () ZERO"), "unusual hours"),
        lines("An hour, and the same hour in other weeks", "short", "Events in the hour before each moment, beside the mean of the same hour in the four weeks before: what is far above or below is unusual.")
            .query(&query("sum(round(increase(EVENTS[1h]))) or on () ZERO"), "this hour")
            .query(
                &query(
                    "((sum(round(increase(EVENTS[1h] offset 1w))) or on () vector(0)) + (sum(round(increase(EVENTS[1h] offset 2w))) or on () vector(0))
                     + (sum(round(increase(EVENTS[1h] offset 3w))) or on () vector(0)) + (sum(round(increase(EVENTS[1h] offset 4w))) or on () vector(0))) / 4",
                ),
                "mean of four weeks",
            ),
    ]
}

fn tickets() -> Vec<Panel> {
    let none = "no snapshot";
    vec![
        heading("Tickets"),
        stat("Open tickets", "locale", "Tickets in a state that counts as open (--tickets.open-states).")
            .now(&query("sum(orgdata_open_tickets{@}) or on () ZERO_TICKETS"), "Open")
            .absent(none),
        stat("Blockers", "locale", "Open tickets that are linked to a deal with the priority BLOCKER.")
            .now(&query(r#"sum(orgdata_open_tickets{@,priority="BLOCKER"}) or on () ZERO_TICKETS"#), "Blockers")
            .steps(&[(1.0, "orange")])
            .absent(none),
        stat("Deal money waiting", "locale", "Sum of the deal amounts of open tickets, in the currency of the service, which it does not name. A deal linked to two tickets is in it twice.")
            .now(&query("sum(orgdata_open_tickets_deal_amount{@}) or on () ZERO_TICKETS"), "Amount")
            .set("/fieldConfig/defaults/decimals", json!(0))
            .absent(none),
        stat("Overdue", "locale", "Open tickets whose due date has passed.")
            .now(&query("sum(orgdata_open_tickets_overdue{@}) or on () ZERO_TICKETS"), "Overdue")
            .steps(&[(1.0, "orange")])
            .absent(none),
        stat("Deals that wait", "locale", "Distinct deals linked to open tickets.")
            .now(&query("sum(orgdata_deals_with_open_tickets{@}) or on () ZERO_TICKETS"), "Deals")
            .absent(none),
        stat("Oldest open ticket", "s", "Age of the oldest open ticket; 0 without one.")
            .now(&query("time() - min(orgdata_open_tickets_oldest_created_timestamp_seconds{@}) or on () ZERO_TICKETS"), "Age")
            .absent(none),
        lines("Open tickets by priority", "short", "Open tickets by the highest priority among the deals that they are linked to; none is a ticket without such a deal.")
            .query(&query("sum by (priority) (orgdata_open_tickets{@}) or on () ZERO_TICKETS"), "{{priority}}")
            .absent(none),
        lines("Deal money waiting by priority", "short", "Sum of the deal amounts of open tickets, by the highest priority among a ticket's deals.")
            .query(&query("sum by (priority) (orgdata_open_tickets_deal_amount{@}) or on () ZERO_TICKETS"), "{{priority}}")
            .absent(none),
        lines("Overdue by type", "short", "Open tickets whose due date has passed, by ticket type.")
            .query(&query("sum by (ticket_type) (orgdata_open_tickets_overdue{@}) or on () ZERO_TICKETS"), "{{ticket_type}}")
            .absent(none),
        lines("Tickets by state", "short", "All tickets by state, open or not.")
            .query(&query("sum by (state) (orgdata_tickets{@}) or on () ZERO_TICKETS"), "{{state}}")
            .absent(none),
        gauges("Open tickets by age", "locale", "Open tickets that are at least so old. A ticket of 30 days is in 7d and 1d too.")
            .now(&query("sum by (min_age) (orgdata_open_tickets_older_than{@}) or on () ZERO_TICKETS"), "at least {{min_age}}")
            .absent(none),
        gauges("Deals with open tickets by priority", "locale", "Distinct deals linked to open tickets, by the highest priority that a ticket gives the deal.")
            .now(&query("sum by (priority) (orgdata_deals_with_open_tickets{@}) or on () ZERO_TICKETS"), "{{priority}}")
            .absent(none),
        gauges("Deal money by state", "locale", "Sum of the deal amounts of all tickets, by state.")
            .now(&query("sum by (state) (orgdata_tickets_deal_amount{@}) or on () ZERO_TICKETS"), "{{state}}")
            .set("/fieldConfig/defaults/decimals", json!(0))
            .absent(none),
    ]
}
