//! What is answered, what is bad, and what a report holds.

use http::{HeaderMap, StatusCode};
use orgdata_probe::{Question, Report};
use orgdata_simulator::{Endpoint, Fault, FaultKind, Readings};
use serde_json::{Value, json};

use crate::service::{Case, answer};
use crate::truths::is_right;

#[test]
fn a_plain_history_answers_everything() {
    let mut case = Case::quiet(5_000, 1_200);
    (case.watch, case.config.rate) = (true, 0.05);
    let (report, _) = case.run();
    for question in Question::all() {
        let mut answers = report.answers.iter();
        let shown = answers.find(|answer| answer.question == question.name);
        let told = answer(&report, question.name);
        let is_told = told.is_some_and(|told| is_right(&case, question.name, &told));
        assert!(is_told, "{shown:#?}");
    }
    assert_eq!(report.answers.len(), Question::all().count());
    assert!(report.answers.iter().all(|answer| answer.advice.is_none()));
    assert!(!report.is_unreadable);
}

#[test]
fn deviations_from_the_contract_are_named_and_not_shown() {
    let report = edited(|items| {
        if let [Value::Object(first), second, third, ..] = &mut **items {
            drop(first.shift_remove("type"));
            second["createdAt"] = json!({ "secret": true });
            second["with space"] = json!(1);
            *third = json!({ "id": third["id"], "futureField": "secret" });
        }
    });
    let told = answer(&report, "deviations from the contract").unwrap();
    for part in [
        "type (missing)",
        "createdAt (object)",
        "another name (unknown)",
        "futureField (unknown)",
    ] {
        assert!(
            told.split(", ").any(|shown| shown == part),
            "{part}: {told}"
        );
    }
    let form = answer(&report, "form of createdAt").unwrap();
    assert_eq!(form, "ISO 8601 in UTC, another type, null or missing");
}

#[test]
fn forms_of_times_are_named() {
    for (time, form) in [
        (json!(1_700_000_000_000_000_u64), "microseconds since 1970"),
        (
            json!(1_700_000_000_000_000_000_u64),
            "nanoseconds since 1970",
        ),
        (
            json!("2026-11-24T21:03:26+01:00"),
            "ISO 8601 with an offset",
        ),
        (json!("Tue Nov 24 21:03:26 2026"), "another readable form"),
        (json!("soon"), "unreadable"),
    ] {
        let report = edited(move |items| {
            for item in items {
                item["createdAt"] = time.clone();
            }
        });
        assert_eq!(answer(&report, "form of createdAt").as_deref(), Some(form));
    }
}

/// Changes the entries of each page.
fn edited(edit: impl Fn(&mut Vec<Value>) + Send + Sync + 'static) -> Report {
    let change = move |_: &mut HeaderMap, body: Vec<u8>| {
        let mut page: Value = serde_json::from_slice(&body).unwrap();
        if let Some(Value::Array(items)) = page.get_mut("items") {
            edit(items);
        }
        page.to_string().into_bytes()
    };
    Case::quiet(30, 10).run_with(change).0
}

#[test]
fn an_answer_with_which_the_exporter_works_badly_says_what_to_do() {
    let count = std::sync::atomic::AtomicU64::new(0);
    let unstable = edited(move |items| {
        for item in items {
            let next = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            item["id"] = json!(format!("random-{next}"));
        }
    });
    let without = edited(|items| items.iter_mut().for_each(|item| item["id"] = Value::Null));
    let readings = Readings {
        ignore_offset: true,
        has_more: Some(false),
        ..Readings::default()
    };
    let expired = Fault::new(FaultKind::ExpiredCursor(StatusCode::GONE));
    let odd = Case::quiet(30, 10)
        .readings(readings)
        .fault(expired)
        .run()
        .0;
    for (report, question, told) in [
        (&unstable, "ids", "not stable"),
        (&without, "ids", "missing"),
        (&odd, "tickets: offset", "ignored"),
        (&odd, "before", "refused"),
    ] {
        assert_eq!(
            answer(report, question).as_deref(),
            Some(told),
            "{question}"
        );
        let has_advice =
            |it: &&orgdata_probe::Answer| it.advice.is_some() && it.question == question;
        assert_eq!(
            report.answers.iter().filter(has_advice).count(),
            1,
            "{question}"
        );
    }
    // A flag that the exporter does not use may be wrong.
    let advised = odd.answers.iter().filter(|answer| answer.advice.is_some());
    assert_eq!(advised.count(), 2);
}

#[test]
fn filters_that_are_ignored_or_half_honoured_are_reported() {
    // The simulator sees what is left of the parameters.
    for (dropped, kept, question, told) in [
        ("activityTypes=", "", "filter by one type", "ignored"),
        (
            "activityTypes=",
            "",
            "filter by type and deal",
            "only the deal applies",
        ),
        ("dealIds=", "", "filter by one deal", "ignored"),
        (
            "dealIds=",
            "",
            "filter by type and deal",
            "only the type applies",
        ),
        (
            "activityTypes%5B%5D=",
            "first",
            "filter by types, repeated with []",
            "only the last type",
        ),
        (
            "activityTypes%5B%5D=",
            "",
            "filter by types, repeated with []",
            "ignored",
        ),
    ] {
        let mut case = Case::quiet(1_000, 0);
        case.without = (dropped, kept == "first");
        let (report, _) = case.run();
        assert_eq!(
            answer(&report, question).as_deref(),
            Some(told),
            "{dropped} {question}"
        );
        let mut answers = report.answers.iter();
        assert!(answers.any(|answer| answer.question == question && answer.advice.is_some()));
    }
}

#[test]
fn headers_are_reported() {
    let change = |headers: &mut HeaderMap, body: Vec<u8>| {
        headers.insert("x-ratelimit-limit", "1000".parse().unwrap());
        headers.insert("etag", "\"1\"".parse().unwrap());
        headers.insert("content-encoding", "gzip".parse().unwrap());
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        std::io::Write::write_all(&mut encoder, &body).unwrap();
        encoder.finish().unwrap()
    };
    let (report, _) = Case::quiet(30, 0).run_with(change);
    let told = ["compression", "rate-limit headers", "ETag"].map(|it| answer(&report, it).unwrap());
    assert_eq!(told, ["gzip", "x-ratelimit-limit", "yes"]);
}

#[test]
fn a_listing_that_cannot_be_read_is_reported_and_the_other_is_asked() {
    let denied = Fault::status(StatusCode::FORBIDDEN).on(Endpoint::Audit);
    let (report, _) = Case::quiet(30, 10).fault(denied).run();
    assert!(report.is_unreadable);
    let mut answers = report.answers.iter();
    let ids = answers.find(|answer| answer.question == "ids").unwrap();
    assert_eq!((&ids.answer, &*ids.evidence), (&None, "status 403"));
    assert_eq!(
        answer(&report, "tickets: offset").as_deref(),
        Some("honoured")
    );
}

#[test]
fn a_report_holds_no_data_of_the_organization() {
    const MARK: &str = "s3cr3t";
    let mark = |value: &mut Value| *value = json!(format!("{MARK} {value}"));
    let change = move |_: &mut HeaderMap, body: Vec<u8>| {
        let mut page: Value = serde_json::from_slice(&body).unwrap();
        for name in ["startCursor", "endCursor"] {
            if page[name].is_string() {
                mark(&mut page[name]);
            }
        }
        for item in page["items"].as_array_mut().into_iter().flatten() {
            item["metadata"] = json!({ (MARK): MARK, "nested": { (MARK): MARK } });
            item[MARK] = json!({ (MARK): MARK });
            for name in ["id", "title", "description", "type", "state", "createdAt"] {
                if item[name].is_string() {
                    mark(&mut item[name]);
                }
            }
            for path in [
                "/organization/name",
                "/deal/name",
                "/deal/id",
                "/actorUser/firstName",
            ] {
                if let Some(value) = item.pointer_mut(path) {
                    mark(value);
                }
            }
        }
        page["message"] = json!(MARK);
        page.to_string().into_bytes()
    };
    for case in [
        Case::quiet(30, 10),
        Case::quiet(30, 10).fault(Fault::status(StatusCode::BAD_REQUEST)),
    ] {
        let mut case = case;
        case.watch = true;
        let (report, _) = case.run_with(change);
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains(MARK), "{text}");
        // Also without marks: everything that is only theirs.
        for secret in ["Example GmbH", "demo-key", "127.0.0.1", "4711"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
