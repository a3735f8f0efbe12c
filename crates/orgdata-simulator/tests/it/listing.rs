//! What the contract says of listings and no test of the exporter would notice: `after`, filters, validation errors and keys.

use orgdata_simulator::ApiKey;
use serde_json::{Value, json};

use crate::support::{audit, flags, get, get_with, ids, items, text, with_history};

#[tokio::test]
async fn a_page_has_100_entries_by_default_and_after_returns_the_one_next_to_the_cursor() {
    let sim = with_history(110, |_| ()).await;
    let top = audit(&sim, "").await;
    assert_eq!((items(&top).len(), flags(&top)), (100, (false, true)));
    let cursor = text(&top, "startCursor");
    let quiet = audit(&sim, &format!("after={cursor}")).await;
    assert_eq!((ids(&quiet), flags(&quiet)), (vec![], (false, true)));
    assert_eq!(text(&quiet, "startCursor"), cursor);
    assert_eq!(quiet["endCursor"], Value::Null);
    sim.add_events(25);
    let next = audit(&sim, &format!("limit=10&after={cursor}")).await;
    let new = audit(&sim, "limit=25").await;
    assert_eq!(
        (ids(&next), flags(&next)),
        (ids(&new)[15..].to_vec(), (true, true))
    );
}

#[tokio::test]
async fn filters_combine_with_and_and_their_values_with_or() {
    type Keep = fn(&Value) -> bool;
    let sim = with_history(1_000, |_| ()).await;
    let all = audit(&sim, "limit=1000").await;
    let cases: [(&str, Keep); 7] = [
        ("activityTypes%5B%5D=TASK_CREATED", |entry| {
            entry["type"] == "TASK_CREATED"
        }),
        (
            "activityTypes[]=TASK_CREATED&activityTypes[]=DEAL_UPDATED",
            |entry| entry["type"] == "TASK_CREATED" || entry["type"] == "DEAL_UPDATED",
        ),
        (
            "activityTypes=TASK_CREATED&actorUserEmails=user%2B1004@example.com",
            |entry| entry["type"] == "TASK_CREATED" && entry["actorUserId"] == 1004,
        ),
        (
            "targetUserEmails[]=user1002%40example.com&targetUserEmails[]=USER1003@example.com",
            |entry| entry["targetUserId"] == 1002 || entry["targetUserId"] == 1003,
        ),
        ("dealIds[]=5001&dealIds[]=nonsense&dealIds[]=1", |entry| {
            entry["dealId"] == 5001
        }),
        ("dealIds=nonsense", |_| true),
        ("actorUserEmails=unknown@example.com", |_| false),
    ];
    for (query, keep) in cases {
        let kept = items(&all).iter().filter(|entry| keep(entry));
        let kept: Vec<&str> = kept.map(|entry| text(entry, "id")).collect();
        assert_eq!(kept.is_empty(), query.contains("unknown"), "{query}");
        let found = audit(&sim, &format!("limit=1000&{query}")).await;
        assert_eq!(ids(&found), kept, "{query}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_rejected_with_its_issues() {
    let sim = with_history(5, |_| ()).await;
    let kind = "activityTypes[]=TASK_CREATED&activityTypes[]=NOT_A_TYPE";
    for (query, path, code) in [
        ("limit=0", "limit", "too_small"),
        ("limit=1001", "limit", "too_big"),
        ("limit=1.5", "limit", "invalid_type"),
        ("sort=up", "sort", "unrecognized_keys"),
        ("before=nonsense", "before", "invalid_cursor"),
        ("after=", "after", "invalid_cursor"),
        (kind, "activityTypes", "invalid_enum_value"),
    ] {
        let (status, body) = get(&sim, &format!("/v1/audit-logs?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(body["error"].is_string());
        let issue = &body["issues"][0];
        let found = (&issue["path"], &issue["code"]);
        assert_eq!(found, (&json!([path]), &json!(code)), "{query}");
        assert!(issue["message"].is_string() && issue.get("received").is_some());
        assert_eq!(issue["options"].is_array(), code == "invalid_enum_value");
    }
    for query in ["offset=x", "offset=-1", "limit=0", "skip=1"] {
        assert_eq!(get(&sim, &format!("/v1/tickets?{query}")).await.0, 400);
    }
}

#[tokio::test]
async fn a_key_needs_the_scope_of_the_listing() {
    let keys = "full read=*:read logs=activity_logs:read none=";
    let keys: Result<Vec<ApiKey>, _> = keys.split(' ').map(str::parse).collect();
    let sim = with_history(5, |config| config.keys = keys.unwrap()).await;
    for (key, audit, tickets) in [
        ("", 401, 401),
        ("wrong", 401, 401),
        ("full", 200, 200),
        ("read", 200, 200),
        ("logs", 200, 403),
        ("none", 403, 403),
    ] {
        for (path, expected) in [("/v1/audit-logs", audit), ("/v1/tickets", tickets)] {
            let (status, body) = get_with(&sim, path, key).await;
            assert_eq!(status, expected, "{key:?} {path}");
            assert_eq!(body["message"].is_string(), expected != 200, "{body}");
        }
    }
}
