//! Never wrong: whatever the API does and whatever fails, each answer is right or missing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use orgdata_probe::MAX_REQUESTS;
use orgdata_simulator::{
    ExpiredReading, Fault, FaultKind, KeyReading, Readings, TimeForm, TotalCount,
};

use crate::service::Case;
use crate::truths::is_right;

/// The number of cases, unless a variable gives another.
const CASES: u64 = 250;
const VARIABLE: &str = "ORGDATA_PROBE_CASES";

/// Changes one reading at random.
fn change(readings: &mut Readings, rng: &mut Rng) {
    let expired = [
        ExpiredReading::Refused,
        ExpiredReading::Empty,
        ExpiredReading::Newest,
    ];
    let forms = [
        TimeForm::NoZone,
        TimeForm::Rfc2822,
        TimeForm::Seconds,
        TimeForm::Millis,
    ];
    let totals = [
        TotalCount::Missing,
        TotalCount::Off(1),
        TotalCount::Off(-1),
        TotalCount::Off(-249),
        TotalCount::PageLength,
    ];
    match rng.u8(..22) {
        20 => readings.time_cursors = true,
        21 => readings.behind = rng.usize(..5),
        0 => readings.after_newest = true,
        1 => readings.after_inclusive = true,
        2 => readings.before_inclusive = true,
        3 => readings.has_previous = Some(rng.bool()),
        4 => readings.has_more = Some(rng.bool()),
        5 | 6 => readings.page_cap = rng.choice([1, 2, 3, 5, 7, 15, 50, 100, 999]),
        7 => readings.key = KeyReading::Arrival,
        8 => readings.filter_after_limit = true,
        9 => readings.row_cursors = true,
        10 | 11 => {
            readings.cursor_ttl = rng.choice([0, 1, 2, 4, 30, 100, 100_000]);
            readings.expired = rng.choice(expired).unwrap();
        }
        12 => readings.oldest_first = true,
        13 => readings.times = rng.choice(forms).unwrap(),
        14 => readings.zone_hours = rng.i64(-12..13),
        15 => {
            readings.node_ahead = rng.i64(0..300);
            readings.visible_after = rng.i64(0..60);
        }
        16 => readings.keep = rng.choice([1, 2, 7, 20, 100]),
        17 => (readings.no_date, readings.date_ahead) = (rng.bool(), rng.i64(0..4000)),
        18 => readings.tickets_oldest_first = true,
        _ => {
            readings.total_count = rng.choice(totals).unwrap();
            readings.ignore_offset = rng.bool();
        }
    }
}

fn fault(rng: &mut Rng) -> Option<Fault> {
    let gone = StatusCode::GONE;
    let kind = match rng.u8(..28) {
        0 => FaultKind::Status(StatusCode::SERVICE_UNAVAILABLE),
        1 => FaultKind::EmptyPage,
        2 => FaultKind::TooLarge(rng.u64(1..1000)),
        3 => FaultKind::ExpiredCursor(gone),
        5 => FaultKind::TruncatedJson,
        6 => FaultKind::ResetBody,
        7 => FaultKind::Reset,
        8 => FaultKind::UnknownFields,
        10 => FaultKind::Duplicate,
        13 => FaultKind::Html(StatusCode::OK),
        14 => FaultKind::Empty(gone),
        15 => FaultKind::TooManyRequests(orgdata_simulator::RetryAfter::Seconds(2)),
        16 => FaultKind::Status(StatusCode::BAD_REQUEST),
        17 => FaultKind::Delay(Duration::from_millis(rng.u64(..8000))),
        // An entry on the first page and a ticket.
        18 => FaultKind::Poison(rng.u64(1..250).to_string()),
        _ => return None,
    };
    let mut fault = Fault::new(kind);
    fault.every = rng
        .choice([None, Some(2), Some(2), Some(3), Some(7)])
        .unwrap();
    fault.times = rng.choice([None, None, None, Some(3)]).unwrap();
    Some(fault)
}

fn case(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed);
    // Large histories take most of the time.
    let history = match rng.u8(..20) {
        0 => 5_000,
        1 | 2 => 0,
        3 | 4 => 1,
        5..=8 => rng.u64(2..30),
        9..=14 => 30,
        _ => rng.u64(30..300),
    };
    let mut case = Case::quiet(history, rng.choice([0, 1, 2, 30, 250]).unwrap());
    case.config.seed = seed;
    change(&mut case.config.readings, &mut rng);
    change(&mut case.config.readings, &mut rng);
    case.config.faults.extend(fault(&mut rng));
    case.config.rate = rng.choice([0.0, 0.0, 0.2, 2.0, 20.0]).unwrap();
    case.config.ticket_change_rate = rng.choice([0.0, 0.0, 0.2, 2.0]).unwrap();
    case.step = Duration::from_millis(rng.choice([0, 20, 300, 1500]).unwrap());
    case.watch = rng.bool();
    case
}

#[test]
fn each_answer_is_right_or_missing() {
    let cases = std::env::var(VARIABLE).map_or(CASES, |count| count.parse().unwrap());
    let next = Mutex::new(0..cases);
    let (wrong, counts) = (
        Mutex::new(Vec::new()),
        Mutex::new(BTreeMap::<_, (u64, u64)>::new()),
    );
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(seed) = next.lock().unwrap().next() else {
                        break;
                    };
                    let case = case(seed);
                    let (report, sim) = case.run();
                    let requests = sim.requests();
                    let sent = requests.audit + requests.tickets;
                    assert!(sent <= u64::from(MAX_REQUESTS) && sent <= u64::from(report.requests));
                    for answer in &report.answers {
                        let mut counts = counts.lock().unwrap();
                        let (told, all) = counts.entry(answer.question).or_default();
                        *all += 1;
                        let Some(text) = &answer.answer else {
                            assert_ne!(answer.evidence, "", "{}", answer.question);
                            continue;
                        };
                        *told += 1;
                        if !is_right(&case, answer.question, text) {
                            let wrongs = &mut wrong.lock().unwrap();
                            wrongs.push(format!(
                                "{seed}: {}: {text} ({})\n{case:?}",
                                answer.question, answer.evidence
                            ));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    for (question, (told, all)) in counts.into_inner().unwrap() {
        println!("{question}: {told} of {all}");
        assert!(told > 0, "{question} is never answered");
    }
}
