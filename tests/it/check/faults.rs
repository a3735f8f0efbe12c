//! Every fault of the simulator: the line names its cause and what to do.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use orgdata_exporter::simulator::{Config, Fault, FaultKind, Simulator};

use super::support::{Checked, Expected, check, organization};

/// How long a request may take here; a fault that hangs takes as long.
const TIMEOUT: &str = "--api.timeout=3s";

/// How many are tried at a time.
const AT_ONCE: usize = 4;

const OPERATORS: &str = "ask its operators";
const CUT: &str = "cuts answers short";
const SWALLOWED: &str = "swallows the answer";
const INSTEAD: &str = "something else answers in the service's place";
const MANNERS: &str = "the exporter waits and goes on by itself";
const BACK: &str = "the exporter cannot look back for a late";

/// What `check` makes of each.
const TABLE: &[(&str, &[Expected])] = &[
    ("500", &[("bad", "service", &["HTTP 500", OPERATORS])]),
    (
        "503",
        &[(
            "bad",
            "service",
            &["HTTP 503: Simulated failure: 503 Service Unavailable", OPERATORS],
        )],
    ),
    (
        "500,on=tickets",
        &[("bad", "tickets", &["HTTP 500", OPERATORS])],
    ),
    (
        "401",
        &[(
            "bad",
            "key",
            &[
                "HTTP 401: the service does not accept the API key",
                "make a key",
                "put it into ORGDATA_API_KEY",
            ],
        )],
    ),
    (
        "401,on=audit",
        &[("bad", "audit-logs", &["HTTP 401", "make a key"])],
    ),
    (
        "403",
        &[
            (
                "bad",
                "audit-logs",
                &[
                    "HTTP 403: the API key lacks the scope activity_logs:read",
                    "--audit.enabled=false",
                ],
            ),
            (
                "bad",
                "tickets",
                &[
                    "HTTP 403: the API key lacks the scope tickets:read",
                    "--tickets.enabled=false",
                ],
            ),
        ],
    ),
    (
        "404",
        &[(
            "bad",
            "service",
            &[
                "HTTP 404: nothing is at this address",
                "--api.base-url is the address up to, and without, /v1",
            ],
        )],
    ),
    (
        "400",
        &[(
            "bad",
            "service",
            &[
                "HTTP 400",
                "not how the service is documented to answer",
                "--api.base-url",
            ],
        )],
    ),
    (
        "418,on=audit",
        &[(
            "bad",
            "audit-logs",
            &["HTTP 418", "not how the service is documented to answer"],
        )],
    ),
    (
        "retry-after",
        &[(
            "warning",
            "service",
            &[
                "HTTP 429: too many requests",
                MANNERS,
                "--api.max-requests-per-second",
            ],
        )],
    ),
    (
        "retry-after=30",
        &[(
            "warning",
            "service",
            &["HTTP 429", "asked to wait 30s", MANNERS],
        )],
    ),
    (
        "retry-after=1h",
        &[(
            "warning",
            "service",
            &["HTTP 429", "asked to wait", MANNERS],
        )],
    ),
    (
        "retry-after=7200,on=tickets",
        &[(
            "warning",
            "tickets",
            &["HTTP 429", "asked to wait 1h or longer", MANNERS],
        )],
    ),
    (
        "redirect=https://login.example.com/x",
        &[(
            "bad",
            "service",
            &[
                "HTTP 307: redirected to https://login.example.com/x",
                "the key is not sent there",
                "set --api.base-url to it",
            ],
        )],
    ),
    ("delay=200ms", &[]),
    (
        "delay=2100ms,on=audit,times=1",
        &[(
            "warning",
            "audit-logs",
            &["slow: a page of one item took 2s", "--api.timeout"],
        )],
    ),
    (
        "delay=1h",
        &[(
            "bad",
            "service",
            &["no answer within 3s", "hangs or is slow, or a firewall"],
        )],
    ),
    (
        "hang",
        &[(
            "bad",
            "service",
            &["no answer within 3s", "hangs or is slow, or a firewall"],
        )],
    ),
    (
        "hang,on=tickets",
        &[("bad", "tickets", &["no answer within 3s"])],
    ),
    (
        "stall",
        &[(
            "bad",
            "service",
            &[
                "the answer stopped",
                "bytes came within 3s",
                "stops in the middle",
            ],
        )],
    ),
    (
        "reset",
        &[(
            "bad",
            "service",
            &[
                "Connection reset by peer",
                "took the connection and dropped it",
            ],
        )],
    ),
    (
        "reset,on=audit,times=1",
        &[(
            "warning",
            "audit-logs",
            &[
                "only another attempt went well",
                "reset",
                "tries again by itself",
            ],
        )],
    ),
    (
        "500,on=audit,every=2",
        &[(
            "warning",
            "audit-logs",
            &[
                "only another attempt went well: HTTP 500",
                "tries again by itself",
            ],
        )],
    ),
    ("reset-body", &[("bad", "service", &["cut off after", CUT])]),
    (
        "truncated-json",
        &[("bad", "service", &["cut off after", CUT])],
    ),
    (
        "html=200",
        &[(
            "bad",
            "service",
            &[
                "text/html",
                "not JSON, probably from a proxy or a login page",
                INSTEAD,
            ],
        )],
    ),
    (
        "html=502",
        &[("bad", "service", &["HTTP 502", "text/html", INSTEAD])],
    ),
    (
        "empty=200",
        &[(
            "bad",
            "service",
            &["HTTP 200: the answer is empty", SWALLOWED],
        )],
    ),
    (
        "empty=204",
        &[(
            "bad",
            "service",
            &["HTTP 204: the answer is empty", SWALLOWED],
        )],
    ),
    ("empty=503", &[("bad", "service", &["HTTP 503", OPERATORS])]),
    ("oversized=100000", &[]),
    (
        "oversized=40000000",
        &[(
            "bad",
            "service",
            &["larger than 33554432 bytes", "--api.base-url"],
        )],
    ),
    (
        "expired-cursor=400",
        &[(
            "warning",
            "audit-logs",
            &["refuses the cursor that it has just sent: HTTP 400", BACK],
        )],
    ),
    (
        "expired-cursor=410",
        &[(
            "warning",
            "audit-logs",
            &["refuses the cursor that it has just sent: HTTP 410", BACK],
        )],
    ),
    (
        "expired-cursor-empty",
        &[(
            "warning",
            "audit-logs",
            &["older entries, and sends none for its own cursor", BACK],
        )],
    ),
    (
        "too-large=10,on=audit",
        &[(
            "warning",
            "audit-logs",
            &[
                "a page of 1 can be read, and one of 1000 cannot: HTTP 500",
                "--api.page-size",
            ],
        )],
    ),
    (
        "too-large=10,on=tickets",
        &[(
            "bad",
            "tickets",
            &[
                "a page of 1 can be read, and one of 1000 cannot: HTTP 500",
                "--api.page-size",
            ],
        )],
    ),
    (
        "empty-page",
        &[
            (
                "warning",
                "audit-logs",
                &["there is no entry", "right organization"],
            ),
            (
                "warning",
                "tickets",
                &[
                    "the service counts 20 tickets and sends none",
                    "inconsistent",
                ],
            ),
        ],
    ),
    (
        "wrong-types",
        &[
            (
                "warning",
                "audit-logs",
                &["1 item is not as documented: invalid type", "dead letter"],
            ),
            (
                "warning",
                "tickets",
                &[
                    "1 item is not as documented: invalid type",
                    "orgdata_tickets_malformed",
                ],
            ),
        ],
    ),
    (
        "missing-id",
        &[
            (
                "warning",
                "audit-logs",
                &["not as documented: missing field `id`", "dead letter"],
            ),
            (
                "warning",
                "tickets",
                &[
                    "not as documented: missing field `id`",
                    "orgdata_tickets_malformed",
                ],
            ),
        ],
    ),
    (
        "not-an-object",
        &[
            (
                "warning",
                "audit-logs",
                &["1 item is not as documented: invalid type: string"],
            ),
            (
                "warning",
                "tickets",
                &["1 item is not as documented: it is not an object"],
            ),
        ],
    ),
    (
        "duplicate",
        &[
            (
                "warning",
                "audit-logs",
                &[
                    "the same item is twice on a page",
                    "the exporter counts it once",
                ],
            ),
            (
                "warning",
                "tickets",
                &[
                    "the same item is twice on a page",
                    "the exporter counts it once",
                ],
            ),
        ],
    ),
    ("unknown-fields", &[]),
];

/// The name of a kind. Whoever adds one is told here that the table needs it too.
fn name(kind: &FaultKind) -> &'static str {
    use FaultKind as Kind;
    match kind {
        Kind::Status(..) => "status",
        Kind::TooManyRequests(_) => "retry-after",
        Kind::Redirect(_) => "redirect",
        Kind::Delay(_) => "delay",
        Kind::Reset => "reset",
        Kind::ResetBody => "reset-body",
        Kind::TruncatedJson => "truncated-json",
        Kind::Stall => "stall",
        Kind::Hang => "hang",
        Kind::Html(_) => "html",
        Kind::Empty(_) => "empty",
        Kind::Body(..) => "body",
        Kind::Oversized(_) => "oversized",
        Kind::ExpiredCursor(_) => "expired-cursor",
        Kind::ExpiredCursorEmpty => "expired-cursor-empty",
        Kind::TooLarge(_) => "too-large",
        // Has a test of its own, since it needs an id.
        Kind::Poison(_) => "poison",
        Kind::EmptyPage => "empty-page",
        Kind::UnknownFields => "unknown-fields",
        Kind::WrongTypes => "wrong-types",
        Kind::MissingId => "missing-id",
        Kind::NotAnObject => "not-an-object",
        Kind::Duplicate => "duplicate",
    }
}

/// How many kinds there are.
const KINDS: usize = 23;

async fn checked(faults: Vec<Fault>) -> Checked {
    let sim = Simulator::spawn(Config {
        faults,
        ..organization()
    })
    .await
    .expect("a simulator");
    Checked::of(check(&sim.base_url()).arg(TIMEOUT)).await
}

#[test]
fn the_table_has_every_kind_of_fault() {
    let fault = |spec: &str| {
        spec.parse::<Fault>()
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let mut kinds: BTreeSet<&str> = TABLE
        .iter()
        .map(|(spec, _)| name(&fault(spec).kind))
        .collect();
    kinds.insert(name(&FaultKind::Poison(String::new())));
    // Any other answer.
    kinds.insert(name(&FaultKind::Body(StatusCode::OK, String::new())));
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
}

#[tokio::test]
async fn each_fault_is_named_with_what_to_do() {
    let runs = TABLE.iter().map(|(spec, expected)| async move {
        let checked = checked(vec![spec.parse().expect("a fault")]).await;
        (spec, expected, checked)
    });
    let mut runs = stream::iter(runs).buffer_unordered(AT_ONCE);
    while let Some((spec, expected, checked)) = runs.next().await {
        println!("{spec}");
        checked.assert_only(expected);
    }
}

#[tokio::test]
async fn an_item_that_the_service_chokes_on_is_one_on_a_large_page() {
    let sim = Simulator::spawn(organization()).await.expect("a simulator");
    let body = crate::support::binary::client()
        .get(format!("{}/v1/audit-logs?limit=20", sim.base_url()))
        .header("X-API-Key", crate::support::binary::KEY);
    let page: serde_json::Value = serde_json::from_str(
        &body
            .send()
            .await
            .expect("it answers")
            .text()
            .await
            .expect("whole"),
    )
    .expect("JSON");
    let id = page["items"][10]["id"].as_str().expect("an id");
    sim.fault(format!("poison={id}").parse().expect("a fault"));
    Checked::of(check(&sim.base_url())).await.assert_only(&[(
        "warning",
        "audit-logs",
        &[
            "a page of 1 can be read, and one of 1000 cannot: HTTP 500: Cannot read item",
            "--api.page-size",
        ],
    )]);
}

#[tokio::test]
async fn a_service_that_wants_to_be_left_alone_is_not_asked_again() {
    let faults = vec!["retry-after=1".parse().expect("a fault")];
    let sim = Simulator::spawn(Config {
        faults,
        ..organization()
    })
    .await
    .expect("a simulator");
    assert_eq!(Checked::of(check(&sim.base_url())).await.status, Some(1));
    assert_eq!((sim.requests().audit, sim.requests().tickets), (1, 1));
}

#[tokio::test]
async fn fields_that_are_new_are_mentioned_and_do_no_harm() {
    let checked = checked(vec![Fault::new(FaultKind::UnknownFields)]).await;
    for listing in ["audit-logs", "tickets"] {
        let (level, said) = checked.line(listing);
        assert!(
            level == "good"
                && said.contains("fields that the specification does not name, which do no harm"),
            "{said}"
        );
    }
}
