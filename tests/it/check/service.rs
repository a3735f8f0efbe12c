//! The service and the way to it: keys, names, ports, certificates, proxies, clocks, organizations.

use std::sync::Arc;

use orgdata_exporter::simulator::{
    AfterReading, ApiKey, ClockSource, Config, CursorReading, EmptyCursor, FlagReading, Order,
    Readings, Simulator, TicketOrder, TotalCount, UnknownParameters,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::support::{Checked, check, organization};
use crate::support::binary::{KEY, launch};
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS, Peer, answer, head, json};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");

/// A service without entries and tickets, behind the test certificate of `localhost`; the port.
async fn tls_service() -> u16 {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let chain = CertificateDer::pem_file_iter(format!("{TLS}server.pem"))
        .expect("a file")
        .collect::<Result<_, _>>()
        .expect("PEM");
    let key = PrivateKeyDer::from_pem_file(format!("{TLS}server.key")).expect("PEM");
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they fit");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust this server goes.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
                        _ => return,
                    }
                }
                let body = if request.starts_with(b"GET /v1/tickets") {
                    NO_TICKETS
                } else {
                    NO_ENTRIES
                };
                let _ = stream
                    .write_all((head("200 OK", &[], body.len()) + body).as_bytes())
                    .await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

/// A port that nobody listens on.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

#[tokio::test]
async fn a_service_that_is_well_is_all_good() {
    let sim = Simulator::spawn(organization()).await.expect("a simulator");
    let checked = Checked::of(check(&sim.base_url())).await;
    checked.assert_only(&[]);
    assert!(
        checked.text.ends_with("\nAll is well.\n"),
        "{}",
        checked.text
    );
    assert_eq!(
        checked.line("service"),
        ("good", format!("{} answers", sim.base_url()).as_str())
    );
    assert!(
        checked
            .line("key")
            .1
            .contains("ORGDATA_API_KEY, for activity_logs:read and tickets:read"),
        "{}",
        checked.text
    );
    assert!(
        checked
            .line("audit-logs")
            .1
            .contains("pages of 1 and of 1000 can be read; the newest entry is of 20"),
        "{}",
        checked.text
    );
    assert!(
        checked.line("tickets").1.contains("there are 20"),
        "{}",
        checked.text
    );
    assert_eq!(checked.line("organization"), ("good", "4711"));
}

#[tokio::test]
async fn a_wrong_key_is_named_and_where_the_right_one_goes() {
    let sim = Simulator::spawn(organization()).await.expect("a simulator");
    let of_variable = check(&sim.base_url()).env("ORGDATA_API_KEY", "not-the-key");
    Checked::of(of_variable).await.assert_only(&[(
        "bad",
        "key",
        &["HTTP 401", "Invalid API key", "put it into ORGDATA_API_KEY"],
    )]);
    let of_file = check(&sim.base_url())
        .without_env("ORGDATA_API_KEY")
        .arg("--api.key-file=the-key");
    std::fs::write(of_file.dir().join("the-key"), "not-the-key\n").expect("writable");
    Checked::of(of_file)
        .await
        .assert_only(&[("bad", "key", &["HTTP 401", "put it into the-key"])]);
}

#[tokio::test]
async fn a_key_with_one_scope_is_bad_only_for_the_loop_that_needs_the_other() {
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let sim = Simulator::spawn(Config {
        keys,
        ..organization()
    })
    .await
    .expect("a simulator");
    let both = Checked::of(check(&sim.base_url())).await;
    both.assert_only(&[(
        "bad",
        "tickets",
        &["lacks the scope tickets:read", "--tickets.enabled=false"],
    )]);
    assert!(
        both.line("key").1.ends_with("for activity_logs:read"),
        "{}",
        both.text
    );
    let one = Checked::of(check(&sim.base_url()).arg("--tickets.enabled=false")).await;
    one.assert_only(&[]);
    assert_eq!(
        one.line("tickets"),
        ("good", "not asked: --tickets.enabled=false")
    );
    // Only the first run asked for tickets, once.
    assert_eq!(sim.requests().tickets, 1);
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_of_it_does() {
    let closed = format!("http://127.0.0.1:{}", closed_port());
    let plain = Simulator::spawn(organization()).await.expect("a simulator");
    let speaks_no_tls = plain.base_url().replace("http://", "https://");
    for (url, words) in [
        (
            "https://no-such-host.invalid",
            &[
                "failed to lookup",
                "check the name in --api.base-url",
                "DNS",
            ][..],
        ),
        (
            &closed,
            &[
                "Connection refused",
                "nothing listens there",
                "port in --api.base-url",
            ],
        ),
        (
            &speaks_no_tls,
            &["InvalidContentType", "does not speak TLS", "http://"],
        ),
    ] {
        Checked::of(check(url))
            .await
            .assert_only(&[("bad", "service", words)]);
    }
}

impl Checked {
    #[track_caller]
    fn assert_service(&self, words: &'static [&'static str]) {
        self.assert_only(&[("bad", "service", words)]);
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_with_the_flag_that_makes_it_so() {
    let port = tls_service().await;
    let url = format!("https://localhost:{port}");
    Checked::of(check(&url)).await.assert_service(&[
        "UnknownIssuer",
        "from an authority that this machine does not trust",
        "--api.ca-file",
    ]);
    let trusted = Checked::of(check(&url).arg(&format!("--api.ca-file={TLS}ca.pem"))).await;
    assert!(
        trusted
            .line("service")
            .1
            .ends_with("answers, and its certificate is trusted"),
        "{}",
        trusted.text
    );
    assert_eq!(trusted.line("tickets"), ("good", "there are none"));
    let no_pem = Checked::of(check(&url).arg(&format!("--api.ca-file={TLS}server.key"))).await;
    no_pem.assert_service(&["--api.ca-file", "holds no certificate", "PEM"]);
}

#[tokio::test]
async fn a_key_is_not_sent_in_plain_text_and_where_it_may_be_that_is_a_warning() {
    let refused = Checked::of(check("http://192.0.2.1")).await;
    refused.assert_only(&[(
        "bad",
        "settings",
        &[
            "http://192.0.2.1",
            "unencrypted",
            "--api.allow-plain-http",
            "ORGDATA_API_BASE_URL",
        ],
    )]);
    // Through a proxy on this machine, so that no other one is needed.
    let proxy = Peer::start(|seen, _| {
        json(
            "200 OK",
            if seen.target().contains("tickets") {
                NO_TICKETS
            } else {
                NO_ENTRIES
            },
        )
    })
    .await;
    let allowed = check("http://api.example.com")
        .arg("--api.allow-plain-http")
        .env("http_proxy", &proxy.url());
    let allowed = Checked::of(allowed).await;
    assert_eq!(allowed.line("service").0, "warning");
    assert!(
        allowed
            .line("service")
            .1
            .contains("crosses the network unencrypted; use https://"),
        "{}",
        allowed.text
    );
    assert_eq!(allowed.status, Some(1));
}

#[tokio::test]
async fn an_answer_of_a_proxy_is_told_from_one_of_the_service() {
    let page = "<html><head><title>Sign in</title></head></html>";
    let peer = Peer::always(answer("200 OK", &["content-type: text/html"], page)).await;
    Checked::of(check(&peer.url())).await.assert_service(&[
        "text/html",
        "Sign in",
        "proxy or login page",
    ]);
    let proxy = Peer::always(answer("407 Proxy Authentication Required", &[], "")).await;
    let through = check("https://api.example.com").env("https_proxy", &proxy.url());
    Checked::of(through).await.assert_service(&[
        "cannot connect",
        "the proxy does not let it through",
        "HTTPS_PROXY",
    ]);
}

#[tokio::test]
async fn json_of_another_service_is_told_from_a_page() {
    let peer = Peer::always(json(
        "200 OK",
        r#"{"items":{"not":"a list"},"message":"hello"}"#,
    ))
    .await;
    Checked::of(check(&peer.url())).await.assert_service(&[
        "not a page of this listing",
        "hello",
        "check --api.base-url",
    ]);
}

#[tokio::test]
async fn a_filter_that_the_service_refuses_is_named() {
    let body = r#"{"error":"Bad request","issues":[{"path":["activityTypes"],"code":"invalid_enum_value","message":"No such type"}]}"#;
    let peer = Peer::start(move |seen, _| match seen.target() {
        target if target.contains("activityTypes") => json("400 Bad Request", body),
        _ => json("200 OK", NO_TICKETS),
    })
    .await;
    let checked = Checked::of(check(&peer.url()).arg("--audit.activity-types=NOTHING")).await;
    checked.assert_only(&[(
        "bad",
        "audit-logs",
        &[
            "activityTypes: No such type",
            "correct the filter",
            "--audit.activity-types",
        ],
    )]);
}

#[tokio::test]
async fn an_empty_organization_is_said_to_be_empty() {
    let empty = Config {
        history: 0,
        tickets: 0,
        ..organization()
    };
    let sim = Simulator::spawn(empty).await.expect("a simulator");
    let checked = Checked::of(check(&sim.base_url())).await;
    checked.assert_only(&[(
        "warning",
        "audit-logs",
        &["there is no entry", "right organization"],
    )]);
    assert_eq!(checked.line("tickets"), ("good", "there are none"));
    let filtered = Checked::of(check(&sim.base_url()).arg("--audit.deal-ids=1")).await;
    filtered.assert_only(&[(
        "warning",
        "audit-logs",
        &[
            "there is no entry",
            "do the --audit filters let anything through",
        ],
    )]);
}

#[tokio::test]
async fn a_clock_that_differs_is_said_by_how_much() {
    let now = jiff::Timestamp::now();
    for (shift, side) in [(3600, "1h"), (-3600, "1h")] {
        let clock = ClockSource::Manual(now + jiff::SignedDuration::from_secs(shift));
        let sim = Simulator::spawn(Config {
            clock,
            ..organization()
        })
        .await
        .expect("a simulator");
        let checked = Checked::of(check(&sim.base_url())).await;
        checked.assert_only(&[("warning", "clock", &["this machine's clock is", "NTP"])]);
        let said = checked.line("clock").1;
        let (behind, ahead) = (
            said.contains("behind the service's"),
            said.contains("ahead of the service's"),
        );
        assert_eq!((behind, ahead), (shift > 0, shift < 0), "{said}");
        assert!(said.contains(side) || said.contains("59m"), "{said}");
    }
    let readings = Readings {
        no_date: true,
        ..Readings::default()
    };
    let sim = Simulator::spawn(Config {
        readings,
        ..organization()
    })
    .await
    .expect("a simulator");
    let checked = Checked::of(check(&sim.base_url())).await;
    checked.assert_only(&[]);
    assert!(
        checked
            .line("clock")
            .1
            .contains("does not say what time it is"),
        "{}",
        checked.text
    );
}

/// What the specification leaves open is no fault, whichever way the service has it.
#[tokio::test]
async fn every_reading_of_the_specification_is_well() {
    let readings: [fn(&mut Readings); 10] = [
        |readings| readings.after = AfterReading::Newest,
        |readings| readings.after_inclusive = true,
        |readings| readings.order = Order::OldestFirst,
        |readings| readings.empty_start_cursor = EmptyCursor::Null,
        |readings| {
            (readings.has_previous, readings.has_more) =
                (FlagReading::AlwaysTrue, FlagReading::AlwaysTrue)
        },
        |readings| {
            (readings.has_previous, readings.has_more) =
                (FlagReading::AlwaysFalse, FlagReading::AlwaysFalse)
        },
        |readings| readings.page_cap = Some(7),
        |readings| readings.cursor = CursorReading::Reserved,
        |readings| readings.unknown_parameters = UnknownParameters::Refuse,
        |readings| readings.ticket_order = TicketOrder::OldestFirst,
    ];
    for (number, change) in readings.into_iter().enumerate() {
        let mut readings = Readings::default();
        change(&mut readings);
        let sim = Simulator::spawn(Config {
            readings,
            ..organization()
        })
        .await
        .expect("a simulator");
        println!("reading {number}");
        Checked::of(check(&sim.base_url())).await.assert_only(&[]);
    }
}

#[tokio::test]
async fn a_count_that_cannot_be_relied_on_is_a_warning() {
    for (total_count, words) in [
        (
            TotalCount::Missing,
            &["does not say how many tickets there are", "inconsistent"][..],
        ),
        (
            TotalCount::Null,
            &["does not say how many tickets there are"],
        ),
        (
            TotalCount::PageLength,
            &["counts the tickets of a page, and not all"],
        ),
        (TotalCount::Off(-3), &["counts 17 tickets and sends 20"]),
    ] {
        let readings = Readings {
            total_count,
            ..Readings::default()
        };
        let sim = Simulator::spawn(Config {
            readings,
            ..organization()
        })
        .await
        .expect("a simulator");
        Checked::of(check(&sim.base_url()))
            .await
            .assert_only(&[("warning", "tickets", words)]);
    }
}

#[tokio::test]
async fn wrong_flags_are_status_2() {
    let no_duration = launch(&["check", "--api.timeout=fast"]).run().await;
    assert!(no_duration.refusal(2).contains("--api.timeout"));
    let no_key = Checked::of(launch(&["check", "--api.base-url=https://api.example.com"])).await;
    no_key.assert_only(&[("bad", "settings", &["--api.key-file", "ORGDATA_API_KEY"])]);
    let nothing = Checked::of(launch(&["check"])).await;
    nothing.assert_only(&[("bad", "settings", &["--api.base-url is missing"])]);
}
