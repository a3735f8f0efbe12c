//! The simulator over real sockets: the specification's rules, the readings of its silent spots, the faults.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use orgdata_exporter::simulator::{
    AfterReading, ApiKey, Config, CursorReading, EmptyCursor, Fault, FaultKind, Fields, FlagReading, KeyReading, Mark, Order, Running,
    Scope, Simulator, TicketOrder, TotalCount, UnknownParameters,
};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

/// One client for all tests: making one loads the system's certificates. It keeps no connection, since each test has
/// a runtime of its own.
fn client() -> &'static Client {
    static CLIENT: LazyLock<Client> = LazyLock::new(|| {
        rustls::crypto::ring::default_provider().install_default().ok();
        Client::builder().no_proxy().pool_max_idle_per_host(0).redirect(Policy::none()).build().unwrap()
    });
    &CLIENT
}

/// A quiet simulator with some history.
async fn with_history(history: u64, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config { history, ..Config::quiet() };
    change(&mut config);
    Simulator::spawn(config).await.unwrap()
}

async fn get(sim: &Running, path: &str) -> (StatusCode, Value) {
    let response = client().get(format!("{}{path}", sim.base_url())).header("X-API-Key", "demo-key").send().await.unwrap();
    let status = response.status();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/json"));
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

async fn audit(sim: &Running, query: &str) -> Value {
    let (status, page) = get(sim, &format!("/v1/audit-logs?{query}")).await;
    assert_eq!(status, 200, "{page}");
    page
}

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

fn text<'a>(page: &'a Value, field: &str) -> &'a str {
    page[field].as_str().unwrap()
}

/// Every id from the newest to the oldest, walked down page by page.
async fn walk_down(sim: &Running, query: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut page = audit(sim, query).await;
    while !page["items"].as_array().unwrap().is_empty() {
        let mut part = ids(&page);
        if sim.readings().order == Order::OldestFirst {
            part.reverse();
        }
        all.extend(part);
        let before = text(&page, "endCursor").to_owned();
        page = audit(sim, &format!("{query}&before={before}")).await;
    }
    all
}

#[tokio::test]
async fn a_page_has_the_newest_entries_and_100_by_default() {
    let sim = with_history(1_500, |_| ()).await;
    let page = audit(&sim, "").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 100);
    assert_eq!((&page["hasPrevious"], &page["hasMore"]), (&json!(false), &json!(true)));
    assert_eq!(page.as_object().unwrap().len(), 5);
    let created: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["createdAt"].as_str().unwrap()).collect();
    assert!(created.is_sorted_by(|newer, older| newer >= older));
    assert_eq!(ids(&audit(&sim, "limit=1000").await).len(), 1_000);
}

#[tokio::test]
async fn walking_down_sees_every_entry_once_at_any_page_size() {
    let sim = with_history(250, |_| ()).await;
    let whole = ids(&audit(&sim, "limit=1000").await);
    assert_eq!(whole.len(), 250);
    for limit in [1, 7, 250] {
        assert_eq!(walk_down(&sim, &format!("limit={limit}")).await, whole);
    }
}

#[tokio::test]
async fn after_returns_the_page_next_to_the_cursor() {
    let sim = with_history(10, |_| ()).await;
    let top = audit(&sim, "limit=3").await;
    let cursor = text(&top, "startCursor").to_owned();
    let quiet = audit(&sim, &format!("after={cursor}")).await;
    assert_eq!((quiet["items"].as_array().unwrap().len(), text(&quiet, "startCursor")), (0, cursor.as_str()));
    assert_eq!((&quiet["endCursor"], &quiet["hasPrevious"], &quiet["hasMore"]), (&Value::Null, &json!(false), &json!(true)));

    sim.add_events(25);
    let new: Vec<_> = ids(&audit(&sim, "limit=25").await);
    let mut seen = Vec::new();
    let mut page = audit(&sim, &format!("limit=10&after={cursor}")).await;
    while !page["items"].as_array().unwrap().is_empty() {
        seen.splice(0..0, ids(&page));
        let next = text(&page, "startCursor").to_owned();
        page = audit(&sim, &format!("limit=10&after={next}")).await;
    }
    assert_eq!(seen, new);
}

#[tokio::test]
async fn after_can_return_the_newest_page_with_a_hole_beneath() {
    let sim = with_history(10, |config| config.readings.after = AfterReading::Newest).await;
    let cursor = text(&audit(&sim, "").await, "startCursor").to_owned();
    sim.add_events(25);
    let newest = ids(&audit(&sim, "limit=10").await);
    let page = audit(&sim, &format!("limit=10&after={cursor}")).await;
    assert_eq!(ids(&page), newest);
    assert_eq!((&page["hasPrevious"], &page["hasMore"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn after_can_be_inclusive() {
    let sim = with_history(10, |config| config.readings.after_inclusive = true).await;
    let top = audit(&sim, "limit=1").await;
    let again = audit(&sim, &format!("after={}", text(&top, "startCursor"))).await;
    assert_eq!(ids(&again), ids(&top));
}

#[tokio::test]
async fn the_oldest_entry_can_come_first_and_the_cursors_stay_the_same() {
    let config = || Config { history: 50, ..Config::quiet() };
    let newest_first = Simulator::spawn(config()).await.unwrap();
    let mut other = config();
    other.readings.order = Order::OldestFirst;
    let oldest_first = Simulator::spawn(other).await.unwrap();
    let (a, b) = (audit(&newest_first, "limit=20").await, audit(&oldest_first, "limit=20").await);
    let mut turned = ids(&b);
    turned.reverse();
    assert_eq!(ids(&a), turned);
    assert_eq!((&a["startCursor"], &a["endCursor"]), (&b["startCursor"], &b["endCursor"]));
    assert_eq!(walk_down(&newest_first, "limit=7").await, walk_down(&oldest_first, "limit=7").await);
}

#[tokio::test]
async fn before_and_after_together_give_what_lies_between() {
    let sim = with_history(30, |_| ()).await;
    let all = ids(&audit(&sim, "").await);
    let (top, bottom) = (audit(&sim, "limit=5").await, audit(&sim, "limit=20").await);
    let query = format!("before={}&after={}", text(&top, "endCursor"), text(&bottom, "endCursor"));
    assert_eq!(ids(&audit(&sim, &query).await), all[5..19]);
    let upside_down = format!("after={}&before={}", text(&top, "endCursor"), text(&bottom, "endCursor"));
    assert!(ids(&audit(&sim, &upside_down).await).is_empty());
}

#[tokio::test]
async fn a_cursor_survives_its_entry() {
    let sim = with_history(100, |_| ()).await;
    let middle = audit(&sim, "limit=50").await;
    let cursor = text(&middle, "endCursor").to_owned();
    assert_eq!(sim.retain(20), 80);
    assert_eq!(ids(&audit(&sim, &format!("after={cursor}")).await).len(), 20);
    assert!(ids(&audit(&sim, &format!("before={cursor}")).await).is_empty());
    assert_eq!(sim.restore(5), 5);
    assert_eq!(ids(&audit(&sim, "").await).len(), 15);
    sim.advance(Duration::from_secs(1));
    sim.add_events(3);
    assert_eq!(ids(&audit(&sim, "").await).len(), 18);
    assert_eq!(sim.retain_within(Duration::from_millis(10)), 15);
    sim.clear_events();
    let empty = audit(&sim, "").await;
    assert_eq!(empty, json!({ "items": [], "startCursor": null, "endCursor": null, "hasPrevious": false, "hasMore": false }));
}

#[tokio::test]
async fn late_rows_fall_behind_the_cursor_or_come_on_top_as_the_key_says() {
    for (key, on_top) in [(KeyReading::CreatedAt, false), (KeyReading::Arrival, true)] {
        let sim = with_history(1_000, |config| config.readings.key = key).await;
        let cursor = text(&audit(&sim, "").await, "startCursor").to_owned();
        let before: HashSet<_> = walk_down(&sim, "limit=1000").await.into_iter().collect();
        sim.add_late(3, Duration::from_secs(3600));
        let polled = ids(&audit(&sim, &format!("after={cursor}")).await);
        assert_eq!(polled.len(), if on_top { 3 } else { 0 });
        let after: HashSet<_> = walk_down(&sim, "limit=1000").await.into_iter().collect();
        assert_eq!((after.difference(&before).count(), after.len()), (3, 1_003));
    }
}

#[tokio::test]
async fn events_come_with_the_clock_and_stay_when_it_goes_back() {
    let sim = with_history(0, |config| config.rate = 10.0).await;
    assert!(ids(&audit(&sim, "").await).is_empty());
    sim.advance(Duration::from_secs(60));
    let count = ids(&audit(&sim, "limit=1000").await).len();
    assert!((590..=605).contains(&count), "{count}");
    let now = sim.now();
    sim.set_clock(now - jiff::SignedDuration::from_secs(30));
    sim.add_events(1);
    assert_eq!(ids(&audit(&sim, "limit=1000").await).len(), count + 1);
    sim.set_rate(0.0);
    sim.advance(Duration::from_secs(600));
    assert_eq!(ids(&audit(&sim, "limit=1000").await).len(), count + 1);
}

#[tokio::test]
async fn an_entry_can_be_given_field_by_field() {
    let sim = with_history(5, |_| ()).await;
    let fields = Fields::new().with("type", "DEAL_WON").with("dealId", 5007).with("actorUserId", 99).with("targetUserId", Value::Null);
    let id = sim.add_entry(&fields).unwrap();
    let page = audit(&sim, "limit=1").await;
    let entry = &page["items"][0];
    assert_eq!((&entry["id"], &entry["type"], &entry["deal"]["id"]), (&json!(id), &json!("DEAL_WON"), &json!(5007)));
    assert_eq!((&entry["actorUser"]["id"], &entry["targetUser"]), (&json!(99), &Value::Null));
    let future = Fields::new().with("id", "from-the-future").with("createdAt", "2031-01-01T00:00:00Z").with("type", "BRAND_NEW");
    sim.add_entry(&future).unwrap();
    assert_eq!(ids(&audit(&sim, "limit=1").await), ["from-the-future"]);
    assert_eq!(ids(&audit(&sim, "activityTypes=BRAND_NEW").await).len(), 1);
    assert_eq!(sim.add_entry(&Fields::new().with("typ", "X")).unwrap_err().field, "typ");
    assert_eq!(sim.add_entry(&Fields::new().with("dealId", "X")).unwrap_err().field, "dealId");
    assert_eq!(sim.add_entry(&Fields::new().without("id")).unwrap_err().field, "id");
    sim.add_entry(&Fields::new().without("id").with("type", 7).unchecked()).unwrap();
    let page = audit(&sim, "limit=2").await;
    assert_eq!((page["items"][1].get("id"), &page["items"][1]["type"]), (None, &json!(7)));
}

#[tokio::test]
async fn filters_combine_with_and_and_their_values_with_or() {
    let sim = with_history(1_000, |_| ()).await;
    let all = audit(&sim, "limit=1000").await;
    let all = all["items"].as_array().unwrap();
    let expect = |keep: &dyn Fn(&Value) -> bool| -> Vec<String> {
        all.iter().filter(|entry| keep(entry)).map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    };
    let created = expect(&|entry| entry["type"] == "TASK_CREATED");
    assert!(!created.is_empty());
    for query in ["activityTypes=TASK_CREATED", "activityTypes[]=TASK_CREATED", "activityTypes%5B%5D=TASK_CREATED"] {
        assert_eq!(ids(&audit(&sim, &format!("limit=1000&{query}")).await), created);
    }
    let both = expect(&|entry| entry["type"] == "TASK_CREATED" || entry["type"] == "DEAL_UPDATED");
    assert_eq!(ids(&audit(&sim, "limit=1000&activityTypes[]=TASK_CREATED&activityTypes[]=DEAL_UPDATED").await), both);
    let actor = expect(&|entry| entry["type"] == "TASK_CREATED" && entry["actorUserId"] == 1004);
    assert!(!actor.is_empty());
    let query = "limit=1000&activityTypes=TASK_CREATED&actorUserEmails=user%2B1004@example.com";
    assert_eq!(ids(&audit(&sim, query).await), actor);
    let target = expect(&|entry| entry["targetUserId"] == 1002 || entry["targetUserId"] == 1003);
    let query = "limit=1000&targetUserEmails[]=user1002%40example.com&targetUserEmails[]=USER1003@example.com";
    assert_eq!(ids(&audit(&sim, query).await), target);
    let deal = expect(&|entry| entry["dealId"] == 5001);
    assert_eq!(ids(&audit(&sim, "limit=1000&dealIds[]=5001&dealIds[]=nonsense&dealIds[]=1").await), deal);
    assert_eq!(ids(&audit(&sim, "limit=1000&dealIds=nonsense").await).len(), 1_000);
    assert!(ids(&audit(&sim, "actorUserEmails=nobody@example.com").await).is_empty());
    assert_eq!(walk_down(&sim, "limit=3&activityTypes=TASK_CREATED").await, created);
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_issues() {
    let sim = with_history(5, |_| ()).await;
    for (query, path, code) in [
        ("limit=0", "limit", "too_small"),
        ("limit=1001", "limit", "too_big"),
        ("limit=many", "limit", "invalid_type"),
        ("limit=1.5", "limit", "invalid_type"),
        ("before=nonsense", "before", "invalid_cursor"),
        ("after=", "after", "invalid_cursor"),
        ("activityTypes[]=TASK_CREATED&activityTypes[]=NOT_A_TYPE", "activityTypes", "invalid_enum_value"),
    ] {
        let (status, body) = get(&sim, &format!("/v1/audit-logs?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(body["error"].is_string());
        let issue = &body["issues"][0];
        assert_eq!((&issue["path"], &issue["code"]), (&json!([path]), &json!(code)), "{query}");
        assert!(issue["message"].is_string() && issue.get("received").is_some());
        assert_eq!(issue["options"].is_array(), code == "invalid_enum_value");
    }
    let (status, body) = get(&sim, "/v1/audit-logs?limit=0&before=x").await;
    assert_eq!((status, body["issues"].as_array().unwrap().len()), (StatusCode::BAD_REQUEST, 2));
    for query in ["offset=x", "offset=-1", "limit=0", "offset=1.5"] {
        assert_eq!(get(&sim, &format!("/v1/tickets?{query}")).await.0, 400, "{query}");
    }
    assert_eq!(get(&sim, "/v1/audit-logs?sort=up").await.0, 200);
    sim.change_readings(|readings| readings.unknown_parameters = UnknownParameters::Refuse);
    assert_eq!(get(&sim, "/v1/audit-logs?sort=up").await.1["issues"][0]["path"], json!(["sort"]));
    assert_eq!(get(&sim, "/v1/audit-logs?activityTypes%5B%5D=DEAL_WON").await.0, 200);
    assert_eq!(get(&sim, "/v1/tickets?skip=1").await.0, 400);
}

#[tokio::test]
async fn a_key_needs_the_scope_of_the_listing() {
    let keys = ["full", "read=*:read", "logs=activity_logs:read", "tickets=tickets:read", "none="];
    let sim = with_history(5, |config| config.keys = keys.iter().map(|key| key.parse::<ApiKey>().unwrap()).collect()).await;
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
async fn other_paths_and_methods_are_refused_in_json() {
    let sim = with_history(5, |_| ()).await;
    assert_eq!(get(&sim, "/v1/users").await.0, 404);
    assert_eq!(get(&sim, "/v2/audit-logs").await.0, 404);
    let response = client().post(format!("{}/v1/tickets", sim.base_url())).send().await.unwrap();
    assert_eq!((response.status(), &response.headers()["allow"]), (StatusCode::METHOD_NOT_ALLOWED, &"GET".parse().unwrap()));
}

#[tokio::test]
async fn flags_cursors_and_page_sizes_follow_the_readings() {
    let sim = with_history(10, |config| {
        config.readings.has_more = FlagReading::AlwaysFalse;
        config.readings.has_previous = FlagReading::AlwaysTrue;
        config.readings.empty_start_cursor = EmptyCursor::Null;
        config.readings.cursor = CursorReading::Reserved;
        config.readings.page_cap = Some(3);
        config.tickets = 5;
    })
    .await;
    let page = audit(&sim, "limit=5").await;
    assert_eq!((ids(&page).len(), &page["hasMore"], &page["hasPrevious"]), (3, &json!(false), &json!(true)));
    let cursor = text(&page, "startCursor").to_owned();
    assert!(cursor.ends_with('='));
    let url = url::Url::parse_with_params(&format!("{}/v1/audit-logs", sim.base_url()), [("after", &cursor)]).unwrap();
    let (_, empty) = get(&sim, &format!("/v1/audit-logs?{}", url.query().unwrap())).await;
    assert_eq!(empty["startCursor"], Value::Null);
    let tickets = get(&sim, "/v1/tickets?limit=100").await.1;
    assert_eq!((tickets["items"].as_array().unwrap().len(), &tickets["limit"]), (3, &json!(3)));
}

#[tokio::test]
async fn tickets_are_paged_by_offset() {
    let sim = with_history(0, |config| config.tickets = 230).await;
    let (_, first) = get(&sim, "/v1/tickets").await;
    assert_eq!((&first["limit"], &first["offset"], &first["totalCount"]), (&json!(100), &json!(0), &json!(230)));
    let mut seen = Vec::new();
    for offset in [0, 100, 200] {
        let (_, page) = get(&sim, &format!("/v1/tickets?offset={offset}")).await;
        assert_eq!(page["offset"], offset);
        seen.extend(page["items"].as_array().unwrap().iter().map(|ticket| ticket["id"].as_u64().unwrap()));
    }
    assert_eq!(seen, (1..=230).rev().collect::<Vec<_>>());
    assert_eq!(get(&sim, "/v1/tickets?offset=230").await.1["items"], json!([]));
    sim.change_readings(|readings| {
        readings.ignore_offset = true;
        readings.total_count = TotalCount::Missing;
        readings.ticket_order = TicketOrder::OldestFirst;
    });
    let (_, page) = get(&sim, "/v1/tickets?offset=100&limit=1").await;
    assert_eq!((&page["items"][0]["id"], &page["offset"], page.get("totalCount")), (&json!(1), &json!(100), None));
}

#[tokio::test]
async fn tickets_change_by_hand_and_by_the_clock() {
    let run = || async {
        let sim = with_history(0, |config| {
            config.tickets = 50;
            config.ticket_change_rate = 1.0;
        })
        .await;
        sim.advance(Duration::from_secs(200));
        let page = get(&sim, "/v1/tickets?limit=1000").await.1;
        (sim, page)
    };
    let ((sim, page), (_, again)) = (run().await, run().await);
    assert_eq!(page, again);
    let (_, start) = get(&with_history(0, |config| config.tickets = 50).await, "/v1/tickets?limit=1000").await;
    assert_ne!(page["items"], start["items"]);

    sim.set_ticket_change_rate(0.0);
    let id = sim.add_ticket(Fields::new().with("dealAmountSum", 0.1).without("title")).unwrap();
    sim.change_ticket(id, Fields::new().with("state", "NEVER_SEEN").with("linkedDeals", Value::Null)).unwrap();
    let (_, page) = get(&sim, "/v1/tickets?limit=1").await;
    let ticket = &page["items"][0];
    assert_eq!((&ticket["id"], &ticket["state"], &ticket["dealAmountSum"]), (&json!(id), &json!("NEVER_SEEN"), &json!(0.1)));
    assert_eq!((&ticket["linkedDeals"], ticket.get("title")), (&Value::Null, None));
    sim.remove_ticket(id).unwrap();
    assert!(sim.remove_ticket(id).is_err() && sim.change_ticket(id, Fields::new()).is_err());
    let before = sim.ticket_ids();
    sim.shuffle_tickets(3);
    assert_ne!(sim.ticket_ids(), before);
    sim.clear_tickets();
    assert_eq!(get(&sim, "/v1/tickets").await.1["totalCount"], 0);
}

#[tokio::test]
async fn a_hook_sees_every_request_and_can_change_the_world_before_it_is_answered() {
    let sim = with_history(0, |_| ()).await;
    sim.on_request(Box::new(|info, sim| {
        assert_eq!(info.param("limit"), Some("7"));
        sim.add_events(2);
        None
    }));
    assert_eq!(ids(&audit(&sim, "limit=7").await).len(), 2);
    assert_eq!(ids(&audit(&sim, "limit=7").await).len(), 4);
    let requests = sim.requests();
    assert_eq!((requests.audit, requests.tickets, requests.statuses[&200]), (2, 0, 2));
    assert_eq!((requests.last[1].raw_query.as_str(), requests.last[1].status), ("limit=7", Some(200)));
}

/// One request to a listing, as far as it gets.
async fn raw(sim: &Running, path: &str) -> reqwest::Result<reqwest::Response> {
    client().get(format!("{}{path}", sim.base_url())).header("X-API-Key", "demo-key").send().await
}

/// A simulator with 20 entries and 20 tickets and this fault.
async fn faulty(fault: &str) -> Running {
    with_history(20, |config| {
        config.tickets = 20;
        config.faults = vec![fault.parse().unwrap()];
    })
    .await
}

#[tokio::test]
async fn a_fault_answers_with_a_status_so_often_and_on_that_listing_only() {
    let sim = faulty("503=down for lunch,on=audit,times=2").await;
    for expected in [503, 503, 200] {
        assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
        let (status, body) = get(&sim, "/v1/audit-logs").await;
        assert_eq!(status, expected);
        if expected == 503 {
            assert_eq!(body, json!({ "message": "down for lunch" }));
        }
    }
    assert!(sim.faults().is_empty());
    for status in [401, 403, 404, 500] {
        let id = sim.fault(Fault::status(StatusCode::from_u16(status).unwrap()));
        assert_eq!(get(&sim, "/v1/tickets").await.0, status);
        assert!(sim.remove_fault(id) && !sim.remove_fault(id));
    }
    assert_eq!(sim.requests().statuses[&503], 2);
}

#[tokio::test]
async fn a_fault_can_hit_every_nth_request_or_by_chance() {
    let sim = faulty("500,every=3").await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(get(&sim, "/v1/tickets").await.0.as_u16());
    }
    assert_eq!(statuses, [200, 200, 500, 200, 200, 500]);
    sim.clear_faults();
    sim.fault("500,chance=0.5".parse().unwrap());
    let mut failed = 0;
    for _ in 0..60 {
        failed += u32::from(get(&sim, "/v1/tickets").await.0 == 500);
    }
    assert!((10..50).contains(&failed), "{failed}");
}

#[tokio::test]
async fn a_429_says_when_to_come_back_in_every_form() {
    for (fault, expected) in [("429", None), ("429=30s", Some("30")), ("429=date:90s", Some("Tue, 01 Jan 2030 00:01:30 GMT"))] {
        let response = raw(&faulty(fault).await, "/v1/audit-logs").await.unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers().get("retry-after").map(|value| value.to_str().unwrap()), expected);
    }
}

#[tokio::test]
async fn a_proxy_in_between_answers_with_html_a_redirect_or_nothing() {
    for (fault, status) in [("html", 200), ("html=502", 502)] {
        let response = raw(&faulty(fault).await, "/v1/audit-logs").await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
        assert!(response.text().await.unwrap().starts_with("<!DOCTYPE html>"));
    }
    let response = raw(&faulty("redirect=http://127.0.0.1:1/else").await, "/v1/tickets").await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (307, &"http://127.0.0.1:1/else".parse().unwrap()));
    for (fault, status) in [("empty", 200), ("empty=500", 500)] {
        let response = raw(&faulty(fault).await, "/v1/tickets").await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_body_can_be_cut_with_and_without_the_header_saying_so() {
    let response = raw(&faulty("truncated-json").await, "/v1/audit-logs").await.unwrap();
    let promised = response.content_length().unwrap();
    let body = response.bytes().await.unwrap();
    assert_eq!(body.len() as u64, promised);
    assert!(body.starts_with(b"{\"items\":[{") && serde_json::from_slice::<Value>(&body).is_err());
    for fault in ["truncated-transfer", "reset-body"] {
        let response = raw(&faulty(fault).await, "/v1/audit-logs").await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.bytes().await.is_err(), "{fault}");
    }
    assert!(raw(&faulty("reset").await, "/v1/audit-logs").await.unwrap_err().is_request());
}

#[tokio::test]
async fn hanging_answers_end_with_the_server() {
    let sim = faulty("hang").await;
    let hanging = tokio::spawn(client().get(format!("{}/v1/tickets", sim.base_url())).send());
    while sim.requests().tickets == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!hanging.is_finished());
    sim.stop().await;
    assert!(hanging.await.unwrap().is_err());

    let sim = faulty("stall").await;
    let response = raw(&sim, "/v1/tickets").await.unwrap();
    sim.stop().await;
    assert!(response.bytes().await.is_err());
}

#[tokio::test]
async fn a_delayed_answer_is_right_and_goes_together_with_another_fault() {
    let sim = faulty("delay=30ms").await;
    let began = std::time::Instant::now();
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    sim.fault("500".parse().unwrap());
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn cursors_can_expire_with_any_status_or_answer_nothing() {
    let sim = faulty("expired-cursor=410").await;
    let page = audit(&sim, "limit=5").await;
    let (start, end) = (text(&page, "startCursor").to_owned(), text(&page, "endCursor").to_owned());
    assert_eq!(get(&sim, &format!("/v1/audit-logs?after={start}")).await.0, 410);
    assert_eq!(get(&sim, &format!("/v1/audit-logs?before={end}")).await.0, 410);
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    sim.clear_faults();
    sim.fault("expired-cursor".parse().unwrap());
    let (status, body) = get(&sim, &format!("/v1/audit-logs?after={start}")).await;
    assert_eq!((status.as_u16(), &body["issues"][0]["path"]), (400, &json!(["after"])));
    sim.clear_faults();
    sim.fault("expired-cursor=empty".parse().unwrap());
    sim.add_events(3);
    let empty = audit(&sim, &format!("after={start}")).await;
    assert_eq!((&empty["items"], &empty["startCursor"]), (&json!([]), &json!(start)));
}

#[tokio::test]
async fn a_page_fails_when_it_is_too_large_or_holds_a_poisoned_item() {
    let sim = faulty("too-large=10").await;
    assert_eq!(get(&sim, "/v1/audit-logs?limit=11").await.0, 500);
    let page = audit(&sim, "limit=10").await;
    sim.clear_faults();
    sim.fault(Fault::new(FaultKind::Poison(ids(&page)[4].clone())));
    assert_eq!(get(&sim, "/v1/audit-logs?limit=5").await.0, 500);
    assert_eq!(get(&sim, "/v1/audit-logs?limit=4").await.0, 200);
    assert_eq!(get(&sim, "/v1/tickets").await.0, 200);
    sim.fault("poison=20,on=tickets".parse().unwrap());
    assert_eq!(get(&sim, "/v1/tickets?limit=1").await.0, 500);
    assert_eq!(get(&sim, "/v1/tickets?offset=1").await.0, 200);
}

#[tokio::test]
async fn items_can_be_malformed_doubled_or_missing() {
    let first = |page: &Value| page["items"][0].clone();
    let page = audit(&faulty("wrong-types").await, "limit=5").await;
    assert!(first(&page)["occurredAt"].is_number() && first(&page)["id"].is_string() && page["items"][1]["occurredAt"].is_string());
    assert!(first(&audit(&faulty("missing-id").await, "").await).get("id").is_none());
    assert!(first(&audit(&faulty("not-an-object").await, "").await).is_string());
    let doubled = audit(&faulty("duplicate").await, "limit=5").await;
    assert_eq!((doubled["items"].as_array().unwrap().len(), first(&doubled)), (6, doubled["items"][1].clone()));
    let unknown = audit(&faulty("unknown-fields").await, "limit=20").await;
    assert!(unknown.get("generatedBy").is_some() && first(&unknown).get("futureField").is_some());
    let sim = faulty("empty-page=10").await;
    assert_eq!(get(&sim, "/v1/tickets?limit=5&offset=10").await.1["items"], json!([]));
    assert_eq!(get(&sim, "/v1/tickets?limit=5&offset=15").await.1["items"].as_array().unwrap().len(), 5);
    let response = raw(&faulty("oversized=100000").await, "/v1/tickets").await.unwrap();
    let body = response.bytes().await.unwrap();
    assert_eq!(body.len(), 100_000);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["totalCount"], 20);
}

#[tokio::test]
async fn a_hook_can_strike_one_request() {
    let sim = with_history(5, |_| ()).await;
    sim.on_request(Box::new(|info, _| (info.number == 2).then(|| "500".parse().unwrap())));
    for expected in [200, 500, 200] {
        assert_eq!(get(&sim, "/v1/audit-logs").await.0, expected);
    }
}

#[tokio::test]
async fn answers_carry_the_date_of_the_clock_and_are_compressed_when_asked() {
    let sim = with_history(200, |config| config.compression = true).await;
    sim.advance(Duration::from_secs(60));
    client();
    let plain = Client::builder().no_proxy().no_gzip().build().unwrap();
    let request = plain.get(format!("{}/v1/audit-logs?limit=200", sim.base_url())).header("x-api-key", "demo-key");
    let response = request.header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(response.headers()["date"], "Tue, 01 Jan 2030 00:01:00 GMT");
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert!(response.bytes().await.unwrap().starts_with(&[0x1f, 0x8b]));
    assert_eq!(ids(&audit(&sim, "limit=200").await).len(), 200);
    sim.change_readings(|readings| readings.no_date = true);
    let response = raw(&sim, "/v1/tickets").await.unwrap();
    assert!(response.headers().get("date").is_none());
}

#[tokio::test]
async fn a_stopped_server_can_be_started_again_on_the_same_port() {
    let sim = with_history(5, |_| ()).await;
    let (address, world) = (sim.address(), Arc::clone(sim.simulator()));
    sim.stop().await;
    let url = format!("http://{address}/v1/tickets");
    assert!(client().get(&url).send().await.unwrap_err().is_connect());
    let _again = world.run_on(address).await.unwrap();
    assert_eq!(client().get(&url).send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn the_truth_counts_what_is_served_and_what_was_taken_away() {
    let sim = with_history(300, |_| ()).await;
    let start = sim.mark();
    let listed = walk_down(&sim, "limit=100").await;
    let entries: Vec<_> = sim.entries().collect();
    assert!(entries.iter().rev().map(|entry| entry.id.clone()).eq(listed));
    let truth = sim.truth();
    assert_eq!((truth.total, truth.counts.values().sum::<u64>()), (300, 300));
    let busiest = truth.counts.iter().max_by_key(|(_, count)| **count).unwrap();
    let counted = entries.iter().filter(|entry| (&entry.activity_type, entry.actor) == (&busiest.0.0, busiest.0.1)).count();
    assert_eq!(counted as u64, *busiest.1);
    assert_eq!(truth.created.unwrap().1, entries.last().unwrap().created_at);

    sim.advance(Duration::from_secs(5));
    sim.add_events(10);
    sim.add_late(4, Duration::from_secs(7200));
    sim.add_entry(&Fields::new().with("actorUserId", 77).with("type", "DEAL_WON")).unwrap();
    sim.restore(6);
    let since = Scope { since: Some(start), ..Scope::default() };
    assert_eq!(sim.truth_of(since).total, 9);
    assert_eq!(sim.truth_of(Scope::arrived_since(start)).total, 15);
    assert_eq!(sim.truth_of(Scope::arrived_since(start)).counts[&("DEAL_WON".to_owned(), Some(77))], 1);
    assert_eq!(sim.entries_of(Scope::arrived_since(start)).count(), 15);
    assert_eq!(sim.truth_of(Scope { created_since: Some(sim.now()), ..Scope::default() }).total, 0);
    assert_eq!(sim.mark().to_string().parse::<Mark>().unwrap(), sim.mark());
}

#[tokio::test]
async fn the_truth_about_tickets_is_what_the_listing_adds_up_to() {
    let sim = with_history(0, |config| config.tickets = 400).await;
    sim.add_ticket(
        Fields::new().with("dealAmountSum", 0.1).with("state", "OPEN").with("linkedDeals", json!([{ "id": 1, "priority": "ODD" }])),
    )
    .unwrap();
    let (_, page) = get(&sim, "/v1/tickets?limit=1000").await;
    let tickets = page["items"].as_array().unwrap();
    let truth = sim.ticket_truth(&["OPEN"]);
    assert_eq!(truth.total, 401);
    let open: Vec<_> = tickets.iter().filter(|ticket| ticket["state"] == "OPEN").collect();
    let groups: Vec<_> = truth.groups.iter().filter(|(group, _)| group.state == "OPEN").collect();
    assert_eq!(groups.iter().map(|(_, sums)| sums.tickets).sum::<u64>(), open.len() as u64);
    let cents: i128 = open.iter().map(|ticket| (ticket["dealAmountSum"].as_f64().unwrap_or(0.0) * 100.0).round() as i128).sum();
    assert_eq!(groups.iter().map(|(_, sums)| sums.cents).sum::<i128>(), cents);
    let now = sim.now().to_string();
    let overdue = open.iter().filter(|ticket| ticket["targetDueDate"].as_str().is_some_and(|due| due < now.as_str())).count();
    assert_eq!(groups.iter().map(|(_, sums)| sums.overdue).sum::<u64>(), overdue as u64);
    let deals: HashSet<_> =
        open.iter().flat_map(|ticket| ticket["linkedDeals"].as_array().into_iter().flatten()).map(|deal| deal["id"].as_i64()).collect();
    assert_eq!(truth.open_deals.values().sum::<u64>(), deals.len() as u64);
    assert_eq!(truth.open_deals["ODD"], 1);
    assert_eq!(sim.tickets().len(), 401);
}

/// A control request with its status and answer.
async fn control(sim: &Running, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let url = format!("{}/control/{path}", sim.base_url());
    let request = client().request(method.parse().unwrap(), url).body(if body.is_null() { String::new() } else { body.to_string() });
    let response = request.send().await.unwrap();
    let status = response.status();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

async fn post(sim: &Running, path: &str, body: Value) -> Value {
    let (status, answer) = control(sim, "POST", path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn the_control_endpoint_changes_the_audit_log() {
    let sim = with_history(10, |_| ()).await;
    let mark = control(&sim, "GET", "truth", Value::Null).await.1["mark"].as_str().unwrap().to_owned();
    assert_eq!(post(&sim, "events", json!({ "count": 5 })).await["total"], 15);
    let added = post(&sim, "events", json!({ "entries": [{ "id": "mine", "type": "DEAL_WON", "actorUserId": 77 }] })).await;
    assert_eq!(added["ids"], json!(["mine"]));
    post(&sim, "events", json!({ "count": 2, "createdAt": "2029-12-31T00:00:00Z" })).await;
    post(&sim, "events", json!({ "entries": [{ "type": 5 }], "unchecked": true, "omit": ["id"] })).await;
    assert_eq!(post(&sim, "late", json!({ "count": 3, "behind": "10m" })).await["total"], 22);
    let (_, truth) = control(&sim, "GET", &format!("truth?since={mark}"), Value::Null).await;
    assert_eq!(truth["audit"]["total"], 12);
    let counts = truth["audit"]["counts"].as_array().unwrap();
    assert!(counts.contains(&json!({ "type": "DEAL_WON", "actorUserId": 77, "count": 1 })), "{counts:?}");

    let lines = raw(&sim, "/control/entries").await.unwrap().text().await.unwrap();
    let served: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut listed = audit(&sim, "limit=1000").await["items"].as_array().unwrap().clone();
    listed.reverse();
    assert_eq!(served, listed);

    assert_eq!(post(&sim, "retention", json!({ "keep": 20 })).await["removed"], 2);
    assert_eq!(post(&sim, "retention", json!({ "within": "1s" })).await["total"], 7);
    assert_eq!(post(&sim, "restore", json!({ "drop": 4 })).await["total"], 3);
    assert_eq!(post(&sim, "clear", Value::Null).await["total"], 0);
    let (_, truth) = control(&sim, "GET", &format!("truth?since={mark}&removed=true"), Value::Null).await;
    assert_eq!(truth["audit"]["total"], 12);
}

#[tokio::test]
async fn the_control_endpoint_changes_faults_tickets_clock_and_readings() {
    let sim = with_history(10, |_| ()).await;
    let added = post(&sim, "faults", json!({ "faults": ["500,on=tickets", "503,on=audit,times=1"] })).await;
    assert_eq!(get(&sim, "/v1/tickets").await.0, 500);
    let (_, listed) = control(&sim, "GET", "faults", Value::Null).await;
    assert_eq!(listed["faults"][0]["fault"], "500=Simulated failure: 500 Internal Server Error,on=tickets");
    assert_eq!(control(&sim, "DELETE", &format!("faults/{}", added["ids"][0]), Value::Null).await.0, 200);
    assert_eq!(control(&sim, "DELETE", "faults/99", Value::Null).await.0, 404);
    assert_eq!(control(&sim, "DELETE", "faults", Value::Null).await.0, 200);
    assert_eq!(get(&sim, "/v1/audit-logs").await.0, 200);

    let tickets = post(&sim, "tickets", json!({ "count": 2, "tickets": [{ "id": 900, "state": "OPEN", "dealAmountSum": 12.34 }] })).await;
    assert_eq!(tickets["ids"], json!([900, 901, 902]));
    assert_eq!(control(&sim, "PATCH", "tickets/900", json!({ "fields": { "type": "BUG" }, "omit": ["linkedDeals"] })).await.0, 200);
    assert_eq!(control(&sim, "DELETE", "tickets/901", Value::Null).await.0, 200);
    assert_eq!(control(&sim, "DELETE", "tickets/901", Value::Null).await.0, 404);
    post(&sim, "tickets/shuffle", json!({ "seed": 5 })).await;
    let (_, truth) = control(&sim, "GET", "truth", Value::Null).await;
    assert_eq!(truth["tickets"]["total"], 2);
    let group = truth["tickets"]["groups"].as_array().unwrap().iter().find(|group| group["priority"] == "none").unwrap();
    assert_eq!((&group["type"], &group["amountCents"]), (&json!("BUG"), &json!("1234")));
    assert_eq!(control(&sim, "DELETE", "tickets", Value::Null).await.0, 200);

    assert_eq!(post(&sim, "clock", json!({ "advance": "1h" })).await["now"], "2030-01-01T01:00:00.000Z");
    assert_eq!(post(&sim, "clock", json!({ "back": "2h" })).await["now"], "2029-12-31T23:00:00.000Z");
    assert_eq!(post(&sim, "clock", json!({ "set": "2031-01-01T00:00:00Z" })).await["now"], "2031-01-01T00:00:00.000Z");
    post(&sim, "rate", json!({ "events": 10, "ticketChanges": 0 })).await;
    post(&sim, "clock", json!({ "advance": "10s" })).await;
    assert!(sim.event_count() > 100);
    let (status, readings) = control(&sim, "PATCH", "readings", json!({ "order": "oldest-first", "totalCount": "-1", "pageCap": 3 })).await;
    assert_eq!((status.as_u16(), &readings["order"], sim.readings().total_count), (200, &json!("oldest-first"), TotalCount::Off(-1)));
    let (_, requests) = control(&sim, "GET", "requests", Value::Null).await;
    assert_eq!((&requests["audit"], &requests["statuses"]["500"]), (&json!(1), &json!(1)));
    assert_eq!(control(&sim, "DELETE", "requests", Value::Null).await.0, 200);
    assert_eq!(sim.requests().audit, 0);
    let (_, users) = control(&sim, "GET", "users", Value::Null).await;
    assert_eq!(users["users"][0]["email"], "user1001@example.com");
}

#[tokio::test]
async fn a_wrong_control_request_is_refused_and_names_the_field() {
    let sim = with_history(10, |_| ()).await;
    for (method, path, body, field) in [
        ("POST", "events", json!({ "cuont": 5 }), "cuont"),
        ("POST", "events", json!({ "count": "x" }), "count"),
        ("POST", "events", json!({}), "count"),
        ("POST", "events", json!({ "entries": [{ "dealid": 5 }] }), "dealid"),
        ("POST", "events", json!({ "entries": [{ "dealId": "5" }] }), "dealId"),
        ("POST", "events", json!({ "count": 1, "createdAt": "yesterday" }), "createdAt"),
        ("POST", "late", json!({ "count": 5 }), "behind"),
        ("POST", "late", json!({ "count": 5, "behind": "soon" }), "behind"),
        ("POST", "retention", json!({}), "keep"),
        ("POST", "restore", json!({ "drop": -1 }), "drop"),
        ("POST", "rate", json!({ "events": -1 }), "events"),
        ("POST", "clock", json!({ "set": 5 }), "set"),
        ("POST", "faults", json!({ "fault": "explode" }), "fault"),
        ("PATCH", "readings", json!({ "order": "sideways" }), "order"),
        ("PATCH", "readings", json!({ "ordre": "x" }), "ordre"),
        ("POST", "tickets", json!({ "tickets": [{ "state": 5 }] }), "state"),
        ("PATCH", "tickets/1", json!({ "fields": { "stat": "OPEN" } }), "stat"),
        ("GET", "truth?sicne=1", Value::Null, "sicne"),
        ("GET", "entries?since=x", Value::Null, "since"),
    ] {
        let (status, answer) = control(&sim, method, path, body.clone()).await;
        assert_eq!((status.as_u16(), &answer["field"]), (400, &json!(field)), "{path} {body} {answer}");
        assert!(answer["message"].as_str().unwrap().contains(field), "{answer}");
    }
    assert_eq!(sim.event_count(), 10);
    assert_eq!(control(&sim, "POST", "truth", Value::Null).await.0, 405);
    assert_eq!(control(&sim, "GET", "nothing", Value::Null).await.0, 404);
    assert!(raw(&sim, "/control/").await.unwrap().text().await.unwrap().contains("/control/truth"));
    assert!(raw(&sim, "/").await.unwrap().text().await.unwrap().contains("/openapi.json"));
}

/// What of a JSON value does not follow a schema of the OpenAPI description.
fn violations(api: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = api.pointer(reference.trim_start_matches('#')).unwrap();
        return violations(api, schema, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let each: Vec<_> = choices.iter().map(|choice| violations(api, choice, value, at)).collect();
        let fits = each.iter().filter(|found| found.is_empty()).count();
        return if fits == 1 { Vec::new() } else { each.concat() };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = types.is_empty() || types.contains(&kind) || (types.contains(&"integer") && (value.is_u64() || value.is_i64()));
    if !fits {
        return vec![format!("{at}: {kind} is none of {types:?}")];
    }
    let mut found = Vec::new();
    if schema["format"] == "date-time" && value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_err()) {
        found.push(format!("{at}: {value} is no time"));
    }
    for item in value.as_array().into_iter().flatten() {
        found.extend(violations(api, &schema["items"], item, &format!("{at}[]")));
    }
    if let Some(object) = value.as_object() {
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(required) {
                found.push(format!("{at}: {required} is missing"));
            }
        }
        for (name, value) in object {
            match schema["properties"].get(name) {
                Some(schema) => found.extend(violations(api, schema, value, &format!("{at}.{name}"))),
                None if schema["additionalProperties"] == false => found.push(format!("{at}: {name} is not described")),
                None => {}
            }
        }
    }
    found
}

#[tokio::test]
async fn what_is_served_is_what_the_openapi_description_says() {
    let sim = with_history(3_000, |config| {
        config.tickets = 1_000;
        config.keys.push("poor=".parse().unwrap());
    })
    .await;
    let (_, api) = get(&sim, "/openapi.json").await;
    assert_eq!(api["openapi"], "3.1.0");
    let check = |path: &str, status: u16, body: &Value| {
        let response = &api["paths"][path]["get"]["responses"][status.to_string()];
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} {status} is not described");
        assert_eq!(violations(&api, schema, body, "body"), Vec::<String>::new());
    };
    let mut nulls: HashSet<String> = HashSet::new();
    let mut query = "limit=1000".to_owned();
    for _ in 0..3 {
        let page = audit(&sim, &query).await;
        check("/v1/audit-logs", 200, &page);
        for entry in page["items"].as_array().unwrap() {
            nulls.extend(entry.as_object().unwrap().iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()));
        }
        query = format!("limit=1000&before={}", text(&page, "endCursor"));
    }
    // Every field that may be null is null sometimes, and no other ever.
    let entry = &api["components"]["schemas"]["AuditLogEntry"];
    assert_eq!(entry["required"].as_array().unwrap().len(), entry["properties"].as_object().unwrap().len());
    let described: HashSet<String> = entry["properties"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, schema)| violations(&api, schema, &Value::Null, "").is_empty())
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(nulls, described);

    let (_, tickets) = get(&sim, "/v1/tickets?limit=1000").await;
    check("/v1/tickets", 200, &tickets);
    for path in ["/v1/audit-logs", "/v1/tickets"] {
        let (status, body) = get(&sim, &format!("{path}?limit=0")).await;
        check(path, status.as_u16(), &body);
        for key in ["wrong", "poor"] {
            let response = client().get(format!("{}{path}", sim.base_url())).header("x-api-key", key).send().await.unwrap();
            let status = response.status().as_u16();
            check(path, status, &serde_json::from_slice(&response.bytes().await.unwrap()).unwrap());
        }
        sim.fault(Fault::status(StatusCode::INTERNAL_SERVER_ERROR).once());
        check(path, 500, &get(&sim, path).await.1);
    }
}
