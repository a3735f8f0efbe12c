//! The ticket listing, in a process of its own: every ticket is drawn from its number, so what all of them add up to is known.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use jiff::Timestamp;

/// The argument that makes the benchmark the other side.
pub(crate) const SERVE: &str = "--serve-the-other-side";

/// Ids begin here, so that each has as many digits as the others.
const FIRST: u64 = 1_000_000;

/// Distinct deals, a seventh of a million tickets.
const DEALS: u64 = 150_000;

/// Over so many days before the start the tickets were created.
const AGE_DAYS: u64 = 400;

const TYPES: [&str; 6] = [
    "BUG",
    "FEATURE_REQUEST",
    "QUESTION",
    "INTEGRATION",
    "SUPPORT_REQUEST",
    "TASK",
];
const STATES: [&str; 5] = ["OPEN", "IN_PROGRESS", "OPEN", "CLOSED", "REJECTED"];
const PRIORITIES: [&str; 4] = ["BLOCKER", "HIGH", "MEDIUM", "LOW"];

/// The service.
pub(crate) struct Peer {
    child: Child,
    address: String,
}

/// What all tickets add up to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) tickets: u64,
    pub(crate) open: u64,
    pub(crate) open_cents: u64,
}

#[derive(Clone, Copy)]
struct Service {
    tickets: u64,
    started: Timestamp,
}

// === impl Peer ===

impl Peer {
    /// A service with so many tickets.
    pub(crate) fn start(tickets: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args([SERVE, &tickets.to_string()])
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let address = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .next()
            .expect("a line")
            .expect("text");
        Self { child, address }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl Truth ===

impl Truth {
    pub(crate) fn of(tickets: u64) -> Self {
        let mut truth = Self {
            tickets,
            ..Self::default()
        };
        for number in (0..tickets).filter(|number| state(*number) == "OPEN") {
            truth.open += 1;
            truth.open_cents += cents(number);
        }
        truth
    }
}

/// The other side: prints its address and serves until its standard input ends.
pub(crate) fn serve() {
    let tickets = std::env::args()
        .skip_while(|argument| argument != SERVE)
        .nth(1)
        .and_then(|count| count.parse().ok())
        .expect("a count");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let router = Router::new()
            .route("/v1/tickets", get(list))
            .with_state(Service {
                tickets,
                started: Timestamp::now(),
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop))
            .await
            .expect("no panic");
    });
}

#[derive(serde::Deserialize)]
struct Asked {
    limit: u64,
    offset: u64,
}

async fn list(
    State(service): State<Service>,
    Query(asked): Query<Asked>,
) -> ([(axum::http::HeaderName, &'static str); 1], String) {
    (
        [(CONTENT_TYPE, "application/json")],
        page(service, asked.limit, asked.offset),
    )
}

/// The bytes of one page, to be printed.
pub(crate) fn page_bytes(limit: u64) -> usize {
    page(
        Service {
            tickets: u64::MAX,
            started: Timestamp::now(),
        },
        limit,
        0,
    )
    .len()
}

fn page(service: Service, limit: u64, offset: u64) -> String {
    let end = service.tickets.min(offset + limit);
    let mut text = String::with_capacity(1024 * limit as usize);
    text.push_str("{\"items\":[");
    for number in offset.min(end)..end {
        if number > offset {
            text.push(',');
        }
        ticket(&mut text, number, service.started);
    }
    write!(
        text,
        "],\"limit\":{limit},\"offset\":{offset},\"totalCount\":{}}}",
        service.tickets
    )
    .expect("memory");
    text
}

/// One ticket like those of the simulator.
fn ticket(text: &mut String, number: u64, started: Timestamp) {
    let id = FIRST + number;
    let (kind, state) = (TYPES[draw(number, 1, 6) as usize], state(number));
    let created = started - Duration::from_millis(draw(number, 2, AGE_DAYS * 86_400_000));
    let due = created + Duration::from_millis(draw(number, 3, 2 * AGE_DAYS * 86_400_000));
    let closed = created + Duration::from_millis(draw(number, 12, 30 * 86_400_000));
    let closed = match state {
        "CLOSED" | "REJECTED" => format!("\"{closed:.3}\""),
        _ => "null".to_owned(),
    };
    let cents = cents(number);
    write!(
        text,
        "{{\"id\":{id},\"type\":\"{kind}\",\"state\":\"{state}\",\"createdAt\":\"{created:.3}\",\"updatedAt\":\"{created:.3}\",\"closedAt\":{closed},\
         \"organizationId\":7,\"createdByUserId\":{},\"title\":\"Single sign-on with the customer's own provider #{id}\",\
         \"description\":\"Reported on the call about single sign-on #{id}.\\nSteps: 1 → 2 → 3\",\"vendorEntityId\":\"{id}\",\"vendorEntityKey\":\"EXT-{id}\",\
         \"integrationInstallationId\":12,\"targetDueDate\":\"{due:.3}\",\"linkedDeals\":[",
        1000 + draw(number, 4, 40)
    )
    .expect("memory");
    for link in 0..[0, 1, 1, 1, 2, 3][draw(number, 5, 6) as usize] {
        let deal = 100_000 + draw(number, 6 + link, DEALS);
        let priority = PRIORITIES[draw(number, 9 + link, 4) as usize];
        let comma = if link > 0 { "," } else { "" };
        write!(
            text,
            "{comma}{{\"id\":{deal},\"evaluationId\":{},\"name\":\"Deal {deal}\",\"priority\":\"{priority}\",\"sharedWithBuyer\":false}}",
            deal + 7
        )
        .expect("memory");
    }
    write!(
        text,
        "],\"dealAmountSum\":{}.{:02},\"vendorEntityUrl\":\"https://tracker.example.com/browse/EXT-{id}\"}}",
        cents / 100,
        cents % 100
    )
    .expect("memory");
}

fn state(number: u64) -> &'static str {
    STATES[draw(number, 0, 5) as usize]
}

fn cents(number: u64) -> u64 {
    draw(number, 20, 50_000_000)
}

/// A number below `bound`, the same for the same question (SplitMix64).
fn draw(number: u64, question: u64, bound: u64) -> u64 {
    let x = (number * 32 + question + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) % bound
}
