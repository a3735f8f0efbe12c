//! The web surface over real sockets: what scrapers, probes, people and hostile clients get.

// A test fails by panicking, also in its helpers.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orgdata_exporter::metrics::audit::{Delta, EventLabels};
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::web::overview::{AuditOverview, Count, Overview};
use orgdata_exporter::web::{
    self, BindError, Health, Limits, ListenAddress, Settings, TelemetryPath, WebState,
};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4";

struct Server {
    addresses: Vec<SocketAddr>,
    url: String,
    metrics: Metrics,
    health: Health,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    client: Client,
}

fn settings(addresses: &[&str]) -> Settings {
    Settings {
        listen_addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        systemd_socket: false,
        config: None,
        telemetry_path: TelemetryPath::default(),
        limits: Limits::default(),
    }
}

/// Deadlines of tests: short enough not to wait for, long enough for a busy machine.
fn tight() -> Limits {
    Limits {
        connections: 8,
        header_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(900),
        write_timeout: Duration::from_millis(300),
        shutdown_grace: Duration::from_millis(500),
    }
}

impl Server {
    async fn start() -> Self {
        Self::with(settings(&["127.0.0.1:0"]), Overview::default).await
    }

    async fn limited(limits: Limits) -> Self {
        Self::with(
            Settings {
                limits,
                ..settings(&["127.0.0.1:0"])
            },
            Overview::default,
        )
        .await
    }

    async fn with(
        settings: Settings,
        overview: impl Fn() -> Overview + Send + Sync + 'static,
    ) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let (metrics, health, shutdown) = (
            Metrics::new(Duration::ZERO),
            Health::default(),
            CancellationToken::new(),
        );
        let bound = web::bind(&settings).await.unwrap();
        let (addresses, url) = (bound.addresses(), bound.url().unwrap());
        let state = WebState {
            metrics: metrics.clone(),
            health: health.clone(),
            overview: Arc::new(overview),
        };
        let task = tokio::spawn(web::serve(bound, state, shutdown.clone()));
        let client = Client::builder().no_gzip().no_proxy().build().unwrap();
        Self {
            addresses,
            url,
            metrics,
            health,
            shutdown,
            task,
            client,
        }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request(Method::GET, path, headers).await
    }

    async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.url));
        headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(*name, *value)
            })
            .send()
            .await
            .unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addresses[0]).await.unwrap()
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Reads what comes until the server closes; panics when it does not within `limit`.
async fn read_to_end(stream: &mut TcpStream, limit: Duration) -> String {
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = tokio::time::timeout(limit, stream.read_to_end(&mut bytes))
        .await
        .expect("the server did not close the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

// === scrapes ===

#[tokio::test]
async fn prometheus_gets_openmetrics() {
    let server = Server::start().await;
    let response = server.get("/metrics", &[("accept", PROMETHEUS)]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        header(&response, "content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert_eq!(header(&response, "vary"), "accept, accept-encoding");
    let body = response.text().await.unwrap();
    assert!(body.contains("# TYPE orgdata_api_requests counter\n"));
    assert!(body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_person_with_curl_gets_the_classic_form() {
    let server = Server::start().await;
    let response = server.get("/metrics", &[("accept", "*/*")]).await;
    assert_eq!(
        header(&response, "content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert_eq!(header(&response, "content-encoding"), "");
    let body = response.text().await.unwrap();
    assert!(body.contains("# TYPE orgdata_api_requests_total counter\n"));
    assert!(body.contains("orgdata_audit_paused 0\n"));
    assert!(!body.contains("# EOF"));
}

#[tokio::test]
async fn a_scrape_shows_the_values_of_the_moment() {
    let server = Server::start().await;
    server.metrics.otlp.records_sent.inc_by(41);
    assert!(
        server
            .get("/metrics", &[])
            .await
            .text()
            .await
            .unwrap()
            .contains("\norgdata_otlp_records_sent_total 41\n")
    );
    server.metrics.otlp.records_sent.inc();
    assert!(
        server
            .get("/metrics", &[])
            .await
            .text()
            .await
            .unwrap()
            .contains("\norgdata_otlp_records_sent_total 42\n")
    );
}

#[tokio::test]
async fn gzip_is_used_when_it_is_accepted() {
    let server = Server::start().await;
    for accept in [PROMETHEUS, "*/*"] {
        let response = server
            .get(
                "/metrics",
                &[("accept", accept), ("accept-encoding", "gzip")],
            )
            .await;
        assert_eq!(header(&response, "content-encoding"), "gzip");
        let compressed = response.bytes().await.unwrap();
        let mut body = String::new();
        flate2::read::GzDecoder::new(&compressed[..])
            .read_to_string(&mut body)
            .unwrap();
        assert!(body.contains("orgdata_audit_paused 0\n"));
        assert!(compressed.len() * 4 < body.len());
    }
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let server = Server::start().await;
    let wanted = [("accept", PROMETHEUS), ("accept-encoding", "gzip")];
    let (get, head) = (
        server.get("/metrics", &wanted).await,
        server.request(Method::HEAD, "/metrics", &wanted).await,
    );
    assert_eq!(head.status(), StatusCode::OK);
    for name in ["content-type", "content-encoding", "vary", "cache-control"] {
        assert_eq!(header(&head, name), header(&get, name), "{name}");
    }
    // No length rather than a wrong one: the scrape was not encoded.
    assert_eq!(header(&head, "content-length"), "");
    assert_eq!(head.bytes().await.unwrap().len(), 0);
    // The connection is still in step.
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn many_scrapes_at_once_are_all_answered() {
    let server = Server::start().await;
    let scrapes = (0..100).map(|_| server.get("/metrics", &[]));
    for response in futures_util::future::join_all(scrapes).await {
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.text().await.unwrap().contains("process_open_fds"));
    }
}

/// One thread for everything: were it the one that encodes, nobody else would be answered meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn a_scrape_of_very_many_series_holds_up_nobody() {
    let server = Server::start().await;
    let set = |number: u32| EventLabels {
        activity_type: "A".into(),
        actor: Some(number.to_string().into()),
    };
    server.metrics.audit.publish(Delta {
        introduced: (0..100_000).map(|number| (set(number), 1)).collect(),
        ..Delta::default()
    });
    let scrape = server.get("/metrics", &[("accept", PROMETHEUS)]);
    tokio::pin!(scrape);
    let mut answered = 0;
    loop {
        tokio::select! {
            response = &mut scrape => {
                assert_eq!(response.status(), StatusCode::OK);
                break;
            }
            response = server.get("/-/healthy", &[]) => {
                assert_eq!(response.status(), StatusCode::OK);
                answered += 1;
            }
        }
    }
    assert!(
        answered >= 3,
        "{answered} answers while a scrape was encoded"
    );
}

#[tokio::test]
async fn the_telemetry_path_can_be_another() {
    let settings = Settings {
        telemetry_path: "/probe/orgdata".parse().unwrap(),
        ..settings(&["127.0.0.1:0"])
    };
    let server = Server::with(settings, Overview::default).await;
    assert_eq!(
        server.get("/probe/orgdata", &[]).await.status(),
        StatusCode::OK
    );
    let missing = server.get("/metrics", &[]).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(missing.text().await.unwrap().contains("/probe/orgdata"));
    assert!(
        server
            .get("/", &[])
            .await
            .text()
            .await
            .unwrap()
            .contains("href=\"/probe/orgdata\"")
    );
}

// === everything else that is asked for ===

#[tokio::test]
async fn another_path_is_told_where_things_are() {
    let server = Server::start().await;
    for path in [
        "/metric",
        "/metrics/",
        "/-/",
        "/favicon.ico",
        "/..%2fetc/passwd",
    ] {
        let response = server.get(path, &[]).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        let body = response.text().await.unwrap();
        for known in ["/metrics", "/-/healthy", "/-/ready", "/."] {
            assert!(body.contains(known), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn another_method_is_refused() {
    let server = Server::start().await;
    for path in ["/", "/metrics", "/-/healthy", "/-/ready"] {
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::OPTIONS,
            Method::TRACE,
        ] {
            let response = server.request(method.clone(), path, &[]).await;
            assert_eq!(
                response.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
            assert_eq!(header(&response, "allow"), "GET, HEAD");
        }
        assert_eq!(
            server
                .request(Method::HEAD, path, &[])
                .await
                .status()
                .as_u16()
                / 100,
            if path == "/-/ready" { 5 } else { 2 }
        );
    }
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let server = Server::start().await;
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/metrics"),
        (Method::HEAD, "/metrics"),
        (Method::GET, "/no"),
        (Method::POST, "/"),
        (Method::GET, "/-/ready"),
    ] {
        let response = server.request(method, path, &[]).await;
        assert_eq!(
            header(&response, "x-content-type-options"),
            "nosniff",
            "{path}"
        );
        assert_eq!(header(&response, "x-frame-options"), "DENY", "{path}");
        assert_eq!(
            header(&response, "referrer-policy"),
            "no-referrer",
            "{path}"
        );
        assert_eq!(header(&response, "cache-control"), "no-store", "{path}");
        assert!(
            header(&response, "content-security-policy").contains("default-src 'none'"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn readiness_follows_the_application() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/-/ready", &[]).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    server.health.set_ready(true);
    assert_eq!(server.get("/-/ready", &[]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_stuck_loop_is_unhealthy_and_named() {
    let server = Server::start().await;
    server.health.watch(Loop::Audit, Duration::from_secs(3600));
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
    server.health.watch(Loop::Tickets, Duration::ZERO);
    let response = server.get("/-/healthy", &[]).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body = response.text().await.unwrap();
    assert!(
        body.contains("tickets") && !body.contains("audit"),
        "{body}"
    );
}

#[tokio::test]
async fn the_page_escapes_what_others_wrote() {
    let evil = "<script>alert(1)</script>\"'&\u{202e}";
    let overview = move || Overview {
        audit: Some(AuditOverview {
            events: 1,
            actors: vec![Count::new(evil, 1)],
            activity_types: vec![Count::new(evil, 1)],
            ..AuditOverview::default()
        }),
        ..Overview::default()
    };
    let server = Server::with(settings(&["127.0.0.1:0"]), overview).await;
    server.metrics.loops.enable(Loop::Audit);
    server
        .metrics
        .loops
        .failure(Loop::Audit, format!("the service said: {evil}"));
    let response = server.get("/", &[]).await;
    assert_eq!(
        header(&response, "content-type"),
        "text/html; charset=utf-8"
    );
    let policy = header(&response, "content-security-policy").to_owned();
    let body = response.text().await.unwrap();
    assert!(!body.contains("<script"), "{body}");
    assert!(body.contains("&lt;script&gt;"));
    // The one style sheet is the one that the policy lets in.
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .unwrap()
        .split('\'')
        .next()
        .unwrap();
    assert!(body.contains(&format!("<style nonce=\"{nonce}\">")));
    assert_ne!(
        header(&server.get("/", &[]).await, "content-security-policy"),
        policy
    );
}

// === listening ===

#[tokio::test]
async fn every_address_is_served() {
    let server = Server::with(
        settings(&["127.0.0.1:0", "[::1]:0", "localhost:0"]),
        Overview::default,
    )
    .await;
    assert!(server.addresses.len() >= 3);
    for address in &server.addresses {
        let response = server
            .client
            .get(format!("http://{address}/-/healthy"))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{address}");
    }
}

#[tokio::test]
async fn a_port_alone_is_every_interface_of_both_families() {
    for everywhere in [":0", "[::]:0"] {
        let server = Server::with(settings(&[everywhere]), Overview::default).await;
        let port = server.addresses[0].port();
        for host in ["127.0.0.1", "[::1]"] {
            assert_eq!(
                server
                    .client
                    .get(format!("http://{host}:{port}/-/healthy"))
                    .send()
                    .await
                    .unwrap()
                    .status(),
                StatusCode::OK
            );
        }
    }
}

#[tokio::test]
async fn both_wildcards_can_be_given() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let server = Server::with(
        settings(&[&format!("[::]:{free}"), &format!("0.0.0.0:{free}")]),
        Overview::default,
    )
    .await;
    assert_eq!(server.addresses.len(), 2);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = web::bind(&settings(&[&address])).await.unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&address) && text.contains("in use") && text.contains("--web.listen-address"),
        "{text}"
    );
}

#[tokio::test]
async fn an_address_of_another_machine_is_refused() {
    let error = web::bind(&settings(&["192.0.2.1:0"])).await.unwrap_err();
    assert!(matches!(error, BindError::Unusable(..)), "{error:?}");
}

#[tokio::test]
async fn a_name_without_an_address_is_refused() {
    let address: ListenAddress = "no-such-host.invalid:0".parse().unwrap();
    let error = web::bind(&Settings {
        listen_addresses: vec![address],
        ..settings(&[])
    })
    .await
    .unwrap_err();
    assert!(matches!(error, BindError::Unusable(..)), "{error:?}");
}

// === hostile and unlucky clients ===

#[tokio::test]
async fn a_client_that_sends_nothing_is_closed() {
    let server = Server::limited(tight()).await;
    let mut stream = server.connect().await;
    assert_eq!(read_to_end(&mut stream, Duration::from_secs(3)).await, "");
}

#[tokio::test]
async fn a_client_that_sends_its_headers_bit_by_bit_is_closed() {
    let server = Server::limited(tight()).await;
    let mut stream = server.connect().await;
    let start = Instant::now();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n")
        .await
        .unwrap();
    while start.elapsed() < Duration::from_secs(3) {
        if stream.write_all(b"x: y\r\n").await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("headers were awaited for {:?}", start.elapsed());
}

#[tokio::test]
async fn a_scraper_keeps_its_connection_between_scrapes() {
    let server = Server::limited(Limits {
        idle_timeout: Duration::from_secs(60),
        ..tight()
    })
    .await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream
            .write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        // Longer than headers may take.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let mut rest = [0; 4096];
        let _ = stream.try_read(&mut rest);
    }
}

#[tokio::test]
async fn a_connection_that_stays_silent_after_an_answer_is_closed() {
    let server = Server::limited(tight()).await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let answer = read_to_end(&mut stream, Duration::from_secs(5)).await;
    assert!(answer.ends_with("healthy.\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_asks_on_and_never_reads_is_closed() {
    let server = Server::limited(tight()).await;
    let mut stream = server.connect().await;
    let requests = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    let asked = async { while stream.write_all(&requests).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("the server kept a client that does not read");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\nGET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let answers = read_to_end(&mut stream, Duration::from_secs(5)).await;
    let (first, second) = (
        answers.find("200 OK").unwrap(),
        answers.find("404 Not Found").unwrap(),
    );
    assert!(first < second);
}

#[tokio::test]
async fn many_idle_clients_do_not_keep_a_scraper_out() {
    let server = Server::limited(Limits {
        header_timeout: Duration::from_secs(60),
        ..tight()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(server.connect().await);
    }
    for _ in 0..5 {
        let response = tokio::time::timeout(Duration::from_secs(5), server.get("/metrics", &[]))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    // The oldest had to give way.
    read_to_end(&mut idle[0], Duration::from_secs(1)).await;
}

#[tokio::test]
async fn huge_headers_are_refused() {
    let server = Server::start().await;
    for headers in [
        format!("x: {}\r\n", "y".repeat(64 * 1024)),
        "x: y\r\n".repeat(100),
    ] {
        let mut stream = server.connect().await;
        // The server may close before everything is sent.
        let _ = stream
            .write_all(format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes())
            .await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 431");
    }
}

#[tokio::test]
async fn a_body_is_not_read() {
    let server = Server::start().await;
    for method in ["POST", "GET"] {
        let mut stream = server.connect().await;
        let request =
            format!("{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_to_end(&mut stream, Duration::from_secs(5)).await;
        assert!(
            answer.starts_with(if method == "GET" {
                "HTTP/1.1 200"
            } else {
                "HTTP/1.1 405"
            }),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn garbage_is_refused_and_the_server_goes_on() {
    let server = Server::start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(garbage).await.unwrap();
        let _ = stream.shutdown().await;
        let answer = read_to_end(&mut stream, Duration::from_secs(5)).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer}"
        );
    }
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
}

// === stopping ===

#[tokio::test]
async fn idle_clients_are_not_waited_for() {
    let server = Server::start().await;
    let _fresh = server.connect().await;
    let mut partial = server.connect().await;
    partial.write_all(b"GET /metrics HT").await.unwrap();
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
    let start = Instant::now();
    server.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(2), server.task)
        .await
        .unwrap()
        .unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
}

/// A page that takes `pause`, and how many are being made.
fn slow_page(pause: Duration) -> (impl Fn() -> Overview + Send + Sync, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let page = {
        let begun = begun.clone();
        move || {
            begun.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(pause);
            Overview::default()
        }
    };
    (page, begun)
}

async fn until_one(begun: &AtomicUsize) {
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_answer_on_its_way_is_finished() {
    let (page, begun) = slow_page(Duration::from_millis(300));
    let server = Server::with(settings(&["127.0.0.1:0"]), page).await;
    let answer = tokio::spawn(server.client.get(&server.url).send());
    until_one(&begun).await;
    server.shutdown.cancel();
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    server.task.await.unwrap();
    assert!(
        TcpStream::connect(server.addresses[0]).await.is_err(),
        "still listening"
    );
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_given_up() {
    let (page, begun) = slow_page(Duration::from_millis(1500));
    let server = Server::with(
        Settings {
            limits: tight(),
            ..settings(&["127.0.0.1:0"])
        },
        page,
    )
    .await;
    let answer = tokio::spawn(server.client.get(&server.url).send());
    until_one(&begun).await;
    let start = Instant::now();
    server.shutdown.cancel();
    server.task.await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(1200),
        "{:?}",
        start.elapsed()
    );
    assert!(answer.await.unwrap().is_err());
}
