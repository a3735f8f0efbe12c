//! What a seed decides before anything happens: the service, the exporter's settings, and how much goes wrong.

use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use orgdata_exporter::audit::Start;
use orgdata_exporter::simulator::{Fault, FaultKind, KeyReading, Readings, RetryAfter, TotalCount};

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) history: u64,
    pub(super) tickets: u64,
    pub(super) start: Start,
    pub(super) page_size: u32,
    pub(super) readings: Readings,
    /// The service keeps entries for this long; `None` if it keeps all.
    pub(super) retention: Option<Duration>,
    /// How far the service's clock is ahead, in milliseconds.
    pub(super) ahead: i64,
    pub(super) poll: Duration,
    pub(super) reread: Duration,
    pub(super) window: Duration,
    pub(super) scan: Duration,
    pub(super) requests_per_second: f64,
    /// Requests per minute that the service answers.
    pub(super) quota: Option<u32>,
    pub(super) batch: u32,
    /// The most bytes and records that the collector takes at once.
    pub(super) most_bytes: usize,
    pub(super) most_records: usize,
    pub(super) max_size: u64,
    pub(super) grace: Duration,
    pub(super) zero_hold: Duration,
    /// How many changes of the world there are.
    pub(super) changes: u32,
    /// The probability that a request fails by itself.
    pub(super) api_trouble: f64,
    pub(super) collector_trouble: f64,
    /// The longest usual time of a request, a send and a call of the disk.
    pub(super) latency: Duration,
    /// The probability that a new entry is one that the collector never accepts, and one without a type.
    pub(super) poison: f64,
    pub(super) malformed: f64,
    /// Some entries are dated in the future, and up to five of them for ever.
    pub(super) future: bool,
    pub(super) for_ever: bool,
    /// Old entries are imported.
    pub(super) imports: bool,
    /// A life may have other filters than the one before.
    pub(super) filters: bool,
    /// Each page of this number is empty by mistake.
    pub(super) empty_page: Option<u64>,
    /// The service says no time, so that the exporter's clock stands for it.
    pub(super) no_date: bool,
    /// Operators put back an older copy of the file.
    pub(super) restores: bool,
    /// Another exporter takes the file over.
    pub(super) takeovers: bool,
}

/// How a life of the exporter ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum End {
    /// With the world.
    #[default]
    Never,
    /// When it passes so many points at which it hands something to the outside or gets it back.
    Crash(u64),
    /// The same, and the last transaction may be on the disk in part.
    PowerCut(u64),
    /// Asked to, after this time.
    Stop(Duration),
    /// Another exporter opens the file after this time.
    Takeover(Duration),
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        // What came later has its own numbers, so that most of the kept seeds stay what they were.
        let more = &mut Rng::with_seed(seed.rotate_left(32));
        let reread = spread(rng, 60_000, 600_000);
        let mut plan = Self {
            seed,
            history: rng.u64(0..16),
            tickets: rng.u64(0..8),
            start: match rng.u8(0..3) {
                0 => Start::Now,
                1 => Start::Oldest,
                _ => Start::Ago(Duration::from_secs(rng.u64(0..320))),
            },
            page_size: match rng.u8(0..3) {
                0 => rng.u32(1..5),
                1 => rng.u32(1..20),
                _ => 1000,
            },
            readings: readings(rng),
            retention: one_in(rng, 4).then(|| spread(rng, 120_000, 1_200_000)),
            ahead: match rng.u8(0..4) {
                0 => rng.i64(-3000..3000),
                1 => rng.i64(-400_000..400_000),
                _ => 0,
            },
            poll: spread(rng, 2_000, 60_000),
            reread,
            window: reread * rng.u32(2..6) + Duration::from_secs(600),
            scan: spread(rng, 10_000, 300_000),
            requests_per_second: if one_in(rng, 4) { 0.5 } else { 1e6 },
            quota: one_in(rng, 6).then(|| rng.u32(10..40)),
            batch: if rng.bool() { rng.u32(1..20) } else { 512 },
            most_bytes: match rng.u8(0..5) {
                0 => rng.usize(6_000..20_000),
                _ => usize::MAX,
            },
            most_records: match rng.u8(0..5) {
                0 => rng.usize(1..10),
                _ => usize::MAX,
            },
            // A file that is full as soon as something waits in it, or not.
            max_size: match one_in(rng, 5) {
                true => 2 << 20 | rng.u64(0..200_000),
                false => 256 << 20,
            },
            grace: spread(rng, 100, 30_000),
            zero_hold: spread(rng, 1, 120_000),
            changes: rng.u32(4..50),
            api_trouble: trouble(rng),
            collector_trouble: trouble(rng),
            latency: spread(rng, 1, 500),
            poison: if one_in(rng, 4) { 0.2 } else { 0.0 },
            malformed: if one_in(rng, 4) { 0.1 } else { 0.0 },
            future: one_in(rng, 8),
            for_ever: one_in(more, 16),
            imports: one_in(more, 3),
            filters: one_in(more, 4),
            empty_page: one_in(rng, 4).then(|| rng.u64(7..40)),
            no_date: one_in(more, 6),
            restores: one_in(more, 6),
            takeovers: one_in(more, 6),
        };
        // A page that is nothing but the entry of the cursor leads nowhere: no client can read such a listing.
        if plan.readings.before_inclusive {
            plan.readings.page_cap = plan.readings.page_cap.map(|cap| cap.max(2));
        }
        // An empty page by mistake is the end if the page before did not say that there is more. And a clock that is behind is only noticed if
        // there is more below the first page.
        let needs_more = plan.empty_page.is_some() || plan.ahead > 0;
        if needs_more && plan.readings.has_more == Some(false) {
            plan.readings.has_more = None;
        }
        // Only on top of a listing in order of arrival they must be found.
        plan.imports &= plan.readings.key == KeyReading::Arrival;
        // An entry without a type is in no list of types.
        if plan.filters {
            plan.malformed = 0.0;
        }
        // An empty listing has no time but that of the clock, which must not be ahead.
        plan.no_date &= plan.ahead >= 0;
        // A full file with bad records alone stays full: the tail cannot bring another one to compare them with.
        if plan.is_small() {
            plan.poison = 0.0;
        }
        plan
    }

    /// Whether the file may only be small.
    pub(super) fn is_small(&self) -> bool {
        self.max_size < 256 << 20
    }

    /// Returns how far the clock that the exporter takes for the service's is ahead, in milliseconds.
    pub(super) fn ahead(&self) -> i64 {
        if self.no_date { 0 } else { self.ahead }
    }
}

impl End {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let points = (4.0 * 100_f64.powf(rng.f64())) as u64;
        match rng.u8(0..10) {
            0..4 => Self::Crash(points),
            4..7 => Self::PowerCut(points),
            _ => Self::Stop(spread(rng, 100, 1_200_000)),
        }
    }
}

/// Returns a time between two numbers of milliseconds, short ones as often as long ones.
pub(super) fn spread(rng: &mut Rng, least: u64, most: u64) -> Duration {
    let (least, most) = (least as f64, most as f64);
    Duration::from_millis((least * (most / least).powf(rng.f64())) as u64)
}

pub(super) fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(0..n) == 0
}

fn trouble(rng: &mut Rng) -> f64 {
    [0.0, 0.02, 0.2][rng.usize(0..3)]
}

fn readings(rng: &mut Rng) -> Readings {
    Readings {
        before_inclusive: rng.bool(),
        has_more: [None, Some(false), Some(true)][rng.usize(0..3)],
        page_cap: one_in(rng, 4).then(|| rng.u64(1..8)),
        key: match rng.u8(0..3) {
            0 => KeyReading::Arrival,
            _ => KeyReading::CreatedAt,
        },
        tickets_oldest_first: rng.bool(),
        total_count: match one_in(rng, 8) {
            true => TotalCount::Missing,
            false => TotalCount::Right,
        },
        ..Readings::default()
    }
}

/// A request that fails, in one way or another.
pub(super) fn fault(rng: &mut Rng) -> Fault {
    let kind = match rng.u8(0..12) {
        0 => FaultKind::Status(status(rng, &[400, 404, 410, 422, 500, 503])),
        1 => FaultKind::ExpiredCursor(status(rng, &[400, 404, 410, 422, 500])),
        2 => FaultKind::TooLarge(rng.u64(1..5)),
        3 => FaultKind::TooManyRequests(match rng.u8(0..4) {
            0 => RetryAfter::Absent,
            1 => RetryAfter::Seconds(rng.u64(0..5)),
            2 => RetryAfter::Date(spread(rng, 1, 60_000)),
            _ => RetryAfter::Seconds(rng.u64(5..900)),
        }),
        4 => FaultKind::Reset,
        5 => FaultKind::ResetBody,
        6 => FaultKind::TruncatedJson,
        7 => FaultKind::Hang,
        8 => FaultKind::Html(StatusCode::OK),
        9 => FaultKind::Empty(StatusCode::OK),
        10 => FaultKind::Delay(spread(rng, 1, 15_000)),
        _ => match rng.u8(0..3) {
            0 => FaultKind::Duplicate,
            1 => FaultKind::UnknownFields,
            _ => FaultKind::Status(status(rng, &[401, 403])),
        },
    };
    Fault::new(kind)
}

fn status(rng: &mut Rng, codes: &[u16]) -> StatusCode {
    StatusCode::from_u16(codes[rng.usize(0..codes.len())]).unwrap()
}
