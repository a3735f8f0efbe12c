//! The audit log listing: pages, cursors, filters, keys, and the readings of ambiguous places.

use std::collections::HashSet;
use std::time::Duration;

use orgdata_simulator::{ApiKey, ExpiredReading, Fields, KeyReading, Served, TimeForm};
use serde_json::{Value, json};

use crate::support::{
    all_ids, audit, client, flags, get, ids, items, listed, raw, text, with_history,
};

#[tokio::test]
async fn a_page_has_the_newest_entries_and_100_by_default() {
    let sim = with_history(1_500, |_| ()).await;
    let page = audit(&sim, "").await;
    assert_eq!((items(&page).len(), flags(&page)), (100, (false, true)));
    assert_eq!(page.as_object().unwrap().len(), 5);
    let created = items(&page).iter().map(|item| text(item, "createdAt"));
    assert!(created.is_sorted_by(|newer, older| newer >= older));
    let whole = listed(&sim, "limit=1000").await;
    assert_eq!(all_ids(&sim, "limit=400").await[..1_000], whole);
    assert_eq!(get(&sim, "/v1/users").await.0, 404);
}

#[tokio::test]
async fn after_returns_the_page_next_to_the_cursor() {
    let sim = with_history(10, |_| ()).await;
    let top = audit(&sim, "limit=3").await;
    let cursor = text(&top, "startCursor").to_owned();
    let quiet = audit(&sim, &format!("after={cursor}")).await;
    assert_eq!(
        (items(&quiet).len(), text(&quiet, "startCursor")),
        (0, &*cursor)
    );
    assert_eq!(
        (&quiet["endCursor"], flags(&quiet)),
        (&Value::Null, (false, true))
    );

    sim.add_events(25);
    let new = listed(&sim, "limit=25").await;
    let mut seen = Vec::new();
    let mut page = audit(&sim, &format!("limit=10&after={cursor}")).await;
    while !items(&page).is_empty() {
        seen.splice(0..0, ids(&page));
        let next = text(&page, "startCursor").to_owned();
        page = audit(&sim, &format!("limit=10&after={next}")).await;
    }
    assert_eq!(seen, new);
    sim.change_readings(|readings| readings.after_newest = true);
    assert_eq!(
        listed(&sim, &format!("limit=10&after={cursor}")).await,
        new[..10]
    );
    sim.change_readings(|readings| {
        (readings.has_more, readings.page_cap) = (Some(false), Some(3));
    });
    let capped = audit(&sim, "limit=5").await;
    assert_eq!((items(&capped).len(), flags(&capped)), (3, (false, false)));
}

#[tokio::test]
async fn before_and_after_together_give_what_lies_between() {
    let sim = with_history(30, |_| ()).await;
    let all = listed(&sim, "").await;
    let (top, bottom) = (audit(&sim, "limit=5").await, audit(&sim, "limit=20").await);
    let query = format!(
        "before={}&after={}",
        text(&top, "endCursor"),
        text(&bottom, "endCursor")
    );
    assert_eq!(listed(&sim, &query).await, all[5..19]);
    let upside_down = format!(
        "after={}&before={}",
        text(&top, "endCursor"),
        text(&bottom, "endCursor")
    );
    assert!(listed(&sim, &upside_down).await.is_empty());
}

#[tokio::test]
async fn entries_come_with_the_clock_go_and_leave_their_cursors() {
    let sim = with_history(100, |config| config.rate = 10.0).await;
    let cursor = text(&audit(&sim, "limit=50").await, "endCursor").to_owned();
    sim.advance(Duration::from_secs(60));
    assert_eq!(sim.truth().total, 700);
    // None are made up for a jump of the clock.
    sim.set_clock(sim.now() - jiff::SignedDuration::from_secs(30));
    sim.set_rate(0.0);
    sim.advance(Duration::from_secs(600));
    assert_eq!(sim.truth().total, 700);
    sim.retain(20);
    assert_eq!(listed(&sim, &format!("after={cursor}")).await.len(), 20);
    assert!(listed(&sim, &format!("before={cursor}")).await.is_empty());
    sim.restore(5);
    assert_eq!(listed(&sim, "").await.len(), 15);
    sim.retain(0);
    let empty = json!({ "items": [], "startCursor": null, "endCursor": null, "hasPrevious": false, "hasMore": false });
    assert_eq!(audit(&sim, "").await, empty);
}

#[tokio::test]
async fn late_rows_fall_behind_the_cursor_or_come_on_top_as_the_key_says() {
    for (key, on_top) in [(KeyReading::CreatedAt, false), (KeyReading::Arrival, true)] {
        let sim = with_history(1_000, |config| config.readings.key = key).await;
        let cursor = text(&audit(&sim, "").await, "startCursor").to_owned();
        let before: HashSet<_> = all_ids(&sim, "limit=1000").await.into_iter().collect();
        sim.add_late(3, Duration::from_secs(3600));
        let polled = listed(&sim, &format!("after={cursor}")).await;
        assert_eq!(polled.len(), if on_top { 3 } else { 0 });
        let after: HashSet<_> = all_ids(&sim, "limit=1000").await.into_iter().collect();
        assert_eq!((after.difference(&before).count(), after.len()), (3, 1_003));
    }
}

#[tokio::test]
async fn an_entry_can_be_given_field_by_field() {
    let sim = with_history(5, |_| ()).await;
    let fields = Fields::new().with("type", "DEAL_WON").with("dealId", 5007);
    let fields = fields
        .with("actorUserId", 99)
        .with("targetUserId", Value::Null);
    let id = sim.add_entry(&fields).unwrap();
    let entry = &audit(&sim, "limit=1").await["items"][0];
    for (path, expected) in [
        ("/id", json!(id)),
        ("/type", json!("DEAL_WON")),
        ("/deal/id", json!(5007)),
        ("/actorUser/id", json!(99)),
        ("/targetUser", Value::Null),
    ] {
        assert_eq!(entry.pointer(path), Some(&expected), "{path}");
    }
    let future = Fields::new().with("id", "from-the-future");
    let future = future.with("createdAt", "2031-01-01T00:00:00Z");
    sim.add_entry(&future.with("type", "BRAND_NEW")).unwrap();
    assert_eq!(listed(&sim, "limit=1").await, ["from-the-future"]);
    assert_eq!(listed(&sim, "activityTypes=BRAND_NEW").await.len(), 1);
    let error = sim.add_entry(&Fields::new().with("typ", "X")).unwrap_err();
    assert!(error.to_string().contains("typ"), "{error}");
    let odd = Fields::new().with("id", Value::Null).with("odd", 7);
    sim.add_entry(&odd.unchecked()).unwrap();
    let entry = &audit(&sim, "limit=2").await["items"][1];
    assert_eq!((&entry["id"], &entry["odd"]), (&Value::Null, &json!(7)));
}

#[tokio::test]
async fn filters_combine_with_and_and_their_values_with_or() {
    type Keep = fn(&Value) -> bool;
    let sim = with_history(1_000, |_| ()).await;
    let all = audit(&sim, "limit=1000").await;
    let task: Keep = |entry| entry["type"] == "TASK_CREATED";
    let cases: [(&str, Keep); 9] = [
        ("activityTypes=TASK_CREATED", task),
        ("activityTypes[]=TASK_CREATED", task),
        ("activityTypes%5B%5D=TASK_CREATED", task),
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
        let entries = all["items"].as_array().unwrap().iter();
        let kept = entries.filter(|entry| keep(entry));
        let kept: Vec<_> = kept.map(|entry| text(entry, "id").to_owned()).collect();
        assert_eq!(kept.is_empty(), query.contains("unknown"), "{query}");
        let query = format!("limit=1000&{query}");
        assert_eq!(listed(&sim, &query).await, kept, "{query}");
    }
    let pages = all_ids(&sim, "limit=3&activityTypes=TASK_CREATED").await;
    assert_eq!(
        pages,
        listed(&sim, "limit=1000&activityTypes=TASK_CREATED").await
    );
}

#[tokio::test]
async fn what_is_wrong_is_rejected_with_its_issues() {
    let sim = with_history(5, |_| ()).await;
    for (query, path, code) in [
        ("limit=0", "limit", "too_small"),
        ("limit=1001", "limit", "too_big"),
        ("limit=many", "limit", "invalid_type"),
        ("limit=1.5", "limit", "invalid_type"),
        ("sort=up", "sort", "unrecognized_keys"),
        ("before=nonsense", "before", "invalid_cursor"),
        ("after=", "after", "invalid_cursor"),
        (
            "activityTypes[]=TASK_CREATED&activityTypes[]=NOT_A_TYPE",
            "activityTypes",
            "invalid_enum_value",
        ),
    ] {
        let (status, body) = get(&sim, &format!("/v1/audit-logs?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(body["error"].is_string());
        let issue = &body["issues"][0];
        assert_eq!(
            (&issue["path"], &issue["code"]),
            (&json!([path]), &json!(code)),
            "{query}"
        );
        assert!(issue["message"].is_string() && issue.get("received").is_some());
        assert_eq!(issue["options"].is_array(), code == "invalid_enum_value");
    }
    for query in ["offset=x", "offset=-1", "limit=0", "skip=1"] {
        assert_eq!(get(&sim, &format!("/v1/tickets?{query}")).await.0, 400);
    }
}

#[tokio::test]
async fn a_key_needs_the_scope_of_the_listing() {
    let keys = [
        "full",
        "read=*:read",
        "logs=activity_logs:read",
        "tickets=tickets:read",
        "none=",
    ];
    let sim = with_history(5, |config| {
        config.keys = keys
            .iter()
            .map(|key| key.parse::<ApiKey>().unwrap())
            .collect()
    })
    .await;
    for (key, audit, tickets) in [
        (None, 401, 401),
        (Some("wrong"), 401, 401),
        (Some("full"), 200, 200),
        (Some("read"), 200, 200),
        (Some("logs"), 200, 403),
        (Some("tickets"), 403, 200),
        (Some("none"), 403, 403),
    ] {
        for (path, expected) in [("/v1/audit-logs", audit), ("/v1/tickets", tickets)] {
            let mut request = client().get(format!("{}{path}", sim.base_url()));
            if let Some(key) = key {
                request = request.header("x-api-key", key);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), expected, "{key:?} {path}");
            if expected != 200 {
                let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
                assert!(body["message"].is_string());
            }
        }
    }
}

#[tokio::test]
async fn a_filter_after_the_limit_leaves_empty_pages_with_more_below() {
    let sim = with_history(60, |config| config.readings.filter_after_limit = true).await;
    let rare = sim.entries().next().unwrap().activity_type;
    let query = format!("limit=5&activityTypes={rare}");
    let (mut page, mut found, mut empty) = (audit(&sim, &query).await, 0, 0);
    while let Some(cursor) = page["endCursor"].as_str() {
        found += ids(&page).len() as u64;
        empty += u32::from(ids(&page).is_empty());
        page = audit(&sim, &format!("{query}&before={cursor}")).await;
    }
    let counts = sim.truth().counts.into_iter();
    let of_type = counts.filter(|((kind, _), _)| *kind == rare);
    assert_eq!(found, of_type.map(|(_, count)| count).sum::<u64>());
    assert!(empty > 0);
}

#[tokio::test]
async fn cursors_may_be_rows_and_may_expire() {
    let sim = with_history(20, |config| {
        (config.readings.row_cursors, config.readings.cursor_ttl) = (true, Some(60));
    })
    .await;
    let page = audit(&sim, "limit=5").await;
    let next = format!("limit=5&before={}", text(&page, "endCursor"));
    assert_eq!(
        audit(&sim, &next).await["items"].as_array().unwrap().len(),
        5
    );
    assert_eq!(sim.delete(&ids(&page)[4..]), 1);
    assert_eq!(get(&sim, &format!("/v1/audit-logs?{next}")).await.0, 400);
    sim.change_readings(|readings| readings.row_cursors = false);
    assert_eq!(get(&sim, &format!("/v1/audit-logs?{next}")).await.0, 200);
    sim.advance(Duration::from_secs(61));
    assert_eq!(get(&sim, &format!("/v1/audit-logs?{next}")).await.0, 400);
    sim.change_readings(|readings| readings.expired = ExpiredReading::Empty);
    let empty = audit(&sim, &next).await;
    assert_eq!((ids(&empty).len(), &empty["endCursor"]), (0, &Value::Null));
    sim.change_readings(|readings| readings.expired = ExpiredReading::Newest);
    assert_eq!(listed(&sim, &next).await, listed(&sim, "limit=5").await);
}

#[tokio::test]
async fn cursors_may_be_times_and_a_replica_may_be_behind() {
    let sim = with_history(2, |config| config.readings.time_cursors = true).await;
    sim.advance(Duration::from_secs(1));
    let at = sim.now().to_string();
    for _ in 0..5 {
        sim.add_entry(&Fields::new().with("createdAt", &*at))
            .unwrap();
    }
    let first = audit(&sim, "limit=3").await;
    let query = |limit| format!("limit={limit}&before={}", text(&first, "endCursor"));
    assert_eq!(audit(&sim, &query(3)).await["items"], first["items"]);
    assert_eq!(ids(&audit(&sim, &query(9)).await).len(), 7);
    let newest = ids(&audit(&sim, "").await);
    sim.change_readings(|readings| readings.behind = 3);
    assert_eq!(ids(&audit(&sim, "").await), newest[3..]);
}

#[tokio::test]
async fn items_may_be_listed_oldest_first_and_only_the_newest_kept() {
    let sim = with_history(20, |_| ()).await;
    let mut newest = listed(&sim, "limit=5").await;
    sim.change_readings(|readings| (readings.oldest_first, readings.keep) = (true, Some(5)));
    newest.reverse();
    assert_eq!(listed(&sim, "").await, newest);
    sim.add_events(3);
    assert_eq!(listed(&sim, "").await[..2], newest[3..]);
}

#[tokio::test]
async fn times_are_written_in_every_form() {
    let sim = with_history(1, |_| ()).await;
    for (form, expected) in [
        (TimeForm::Iso, json!("2029-12-25T02:00:00.000Z")),
        (TimeForm::NoZone, json!("2029-12-25T02:00:00.000")),
        (TimeForm::Seconds, json!(1_892_858_400)),
        (TimeForm::Millis, json!(1_892_858_400_000_i64)),
    ] {
        sim.change_readings(|readings| (readings.times, readings.zone_hours) = (form, 2));
        assert_eq!(audit(&sim, "").await["items"][0]["createdAt"], expected);
    }
}

#[tokio::test]
async fn clocks_differ_rows_come_late_and_the_organization_is_renamed() {
    let sim = with_history(0, |config| {
        config.readings.node_ahead = 60;
        config.readings.visible_after = 20;
        config.readings.date_ahead = 3600;
    })
    .await;
    sim.add_events(50);
    let now = sim.now();
    let ahead = |entry: &Served| entry.created_at.duration_since(now).as_secs();
    let ahead: Vec<i64> = sim.entries().map(|entry| ahead(&entry)).collect();
    let of_node = ahead.iter().filter(|ahead| **ahead >= 39).count();
    assert!((10..30).contains(&of_node) && ahead[0] <= -20, "{ahead:?}");
    let response = raw(&sim, "/v1/audit-logs").await.unwrap();
    assert_eq!(response.headers()["date"], "Tue, 01 Jan 2030 01:00:00 GMT");
    sim.rename("New & Co");
    let page = audit(&sim, "").await;
    let items = page["items"].as_array().unwrap().iter();
    let mut names = items.filter_map(|item| item["organization"]["name"].as_str());
    assert!(names.all(|name| name == "New & Co"));
}
