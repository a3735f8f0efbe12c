//! The web surface over real sockets: what scrapers, probes, people and hostile clients get.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orgdata_exporter::metrics::audit::{Delta, EventLabels};
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::web::overview::{AuditOverview, Count, Overview};
use orgdata_exporter::web::{
    self, BindError, Health, Limits, Settings, TelemetryPath, WebConfig, WebState,
};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4";

/// One request of a client that does nothing else with the connection.
const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";

/// A server in this process; it stops when it is dropped.
pub(crate) struct Server {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) url: String,
    metrics: Metrics,
    health: Health,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
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

/// Deadlines that are short enough to wait for, and long enough for a busy machine.
pub(crate) fn tight() -> Limits {
    Limits {
        connections: 8,
        header_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(900),
        write_timeout: Duration::from_millis(300),
        shutdown_grace: Duration::from_millis(500),
    }
}

// === impl Server ===

impl Server {
    async fn start() -> Self {
        Self::with(settings(&["127.0.0.1:0"]), Overview::default).await
    }

    pub(crate) async fn limited(limits: Limits, config: Option<WebConfig>) -> Self {
        let settings = Settings {
            limits,
            config,
            ..settings(&["127.0.0.1:0"])
        };
        Self::with(settings, Overview::default).await
    }

    async fn with(
        settings: Settings,
        overview: impl Fn() -> Overview + Send + Sync + 'static,
    ) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let (metrics, health) = (Metrics::new(Duration::from_millis(1)), Health::default());
        let bound = web::bind(&settings).await.unwrap();
        let (addresses, url) = (bound.addresses(), bound.url().unwrap());
        let shutdown = CancellationToken::new();
        let state = WebState {
            metrics: metrics.clone(),
            health: health.clone(),
            overview: Arc::new(overview),
        };
        let task = Some(tokio::spawn(web::serve(bound, state, shutdown.clone())));
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
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.send().await.unwrap()
    }

    async fn text(&self, path: &str) -> String {
        self.get(path, &[]).await.text().await.unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addresses[0]).await.unwrap()
    }

    /// Connects and sends something; the server may close before everything is sent.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        stream
    }

    fn publish_series(&self, count: u32) {
        let labels = |number: u32| EventLabels {
            activity_type: "AN_ACTIVITY_TYPE_OF_USUAL_LENGTH".into(),
            actor: Some(number.to_string().into()),
        };
        let introduced = (0..count).map(|number| (labels(number), 1)).collect();
        self.metrics.audit.publish(Delta {
            introduced,
            ..Delta::default()
        });
    }

    async fn stop(&mut self) -> Duration {
        let start = Instant::now();
        self.shutdown.cancel();
        self.task.take().unwrap().await.unwrap();
        start.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Reads until the server closes; panics if it does not.
pub(crate) async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut bytes))
        .await
        .expect("the server did not close the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

// === scrapes ===

#[tokio::test]
async fn prometheus_gets_openmetrics_and_a_person_the_classic_format() {
    let server = Server::start().await;
    let response = server.get("/metrics", &[("accept", PROMETHEUS)]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        header(&response, "content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert_eq!(header(&response, "vary"), "accept, accept-encoding");
    let body = response.text().await.unwrap();
    assert!(body.contains("# TYPE orgdata_api_requests counter\n") && body.ends_with("# EOF\n"));

    let response = server.get("/metrics", &[("accept", "*/*")]).await;
    assert_eq!(
        header(&response, "content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert_eq!(header(&response, "content-encoding"), "");
    let body = response.text().await.unwrap();
    assert!(
        body.contains("# TYPE orgdata_api_requests_total counter\n") && !body.contains("# EOF")
    );
    // Each request gets current values.
    for sent in 1..3 {
        server.metrics.otlp.records_sent.inc();
        let expected = format!("\norgdata_otlp_records_sent_total {sent}\n");
        assert!(server.text("/metrics").await.contains(&expected));
    }
}

#[tokio::test]
async fn gzip_is_used_if_it_is_accepted() {
    let server = Server::start().await;
    server.publish_series(10_000);
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
        assert!(body.contains("orgdata_audit_paused 0\n") && body.contains("actor=\"9999\""));
        assert!(compressed.len() * 4 < body.len());
    }
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let server = Server::start().await;
    let wanted = [("accept", PROMETHEUS), ("accept-encoding", "gzip")];
    let get = server.get("/metrics", &wanted).await;
    let head = server.request(Method::HEAD, "/metrics", &wanted).await;
    assert_eq!(head.status(), StatusCode::OK);
    for name in ["content-type", "content-encoding", "vary", "cache-control"] {
        assert_eq!(header(&head, name), header(&get, name), "{name}");
    }
    // No length rather than a wrong one: the metrics were not rendered.
    assert_eq!(header(&head, "content-length"), "");
    assert_eq!(head.bytes().await.unwrap().len(), 0);
    // The connection is still in step.
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn only_a_complete_response_to_a_scraper_starts_the_hold() {
    let server = Server::start().await;
    let labels = EventLabels {
        activity_type: "A".into(),
        actor: Some("1".into()),
    };
    server.metrics.audit.publish(Delta {
        events: vec![(labels, 3)],
        ..Delta::default()
    });
    let shown = async |headers: &[(&str, &str)]| {
        let body = server.get("/metrics", headers).await.text().await.unwrap();
        // Longer than the hold.
        tokio::time::sleep(Duration::from_millis(5)).await;
        body.lines().find_map(|line| {
            line.strip_prefix("orgdata_audit_events_total{activity_type=\"A\",actor=\"1\"} ")?
                .parse()
                .ok()
        })
    };
    let browser = [("accept", "text/html,*/*;q=0.8")];
    for _ in 0..3 {
        assert_eq!(shown(&browser).await, Some(0));
        server
            .request(Method::HEAD, "/metrics", &[("accept", PROMETHEUS)])
            .await;
    }
    assert_eq!(
        shown(&[("x-prometheus-scrape-timeout-seconds", "10")]).await,
        Some(0)
    );
    assert_eq!(shown(&browser).await, Some(3));
}

#[tokio::test]
async fn many_scrapes_at_once_share_the_rendering() {
    let server = Server::start().await;
    server.publish_series(20_000);
    let one = Instant::now();
    server.text("/metrics").await;
    let one = one.elapsed();
    let many = Instant::now();
    let scrapes = (0..100).map(|_| server.get("/metrics", &[]));
    for response in futures_util::future::join_all(scrapes).await {
        assert_eq!(response.status(), StatusCode::OK);
        drop(response);
    }
    assert!(
        many.elapsed() < one * 30,
        "{:?} for 100, {one:?} for one",
        many.elapsed()
    );
}

/// On one thread: if it rendered the metrics, no other request would be answered meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn a_scrape_of_very_many_series_delays_no_other_request() {
    let server = Server::start().await;
    server.publish_series(100_000);
    let scrape = server.get("/metrics", &[("accept", PROMETHEUS)]);
    tokio::pin!(scrape);
    let mut answered = 0;
    loop {
        tokio::select! {
            response = &mut scrape => break assert_eq!(response.status(), StatusCode::OK),
            response = server.get("/-/healthy", &[]) => {
                assert_eq!(response.status(), StatusCode::OK);
                answered += 1;
            }
        }
    }
    assert!(answered >= 3, "{answered} responses during one scrape");
}

// === everything else that is requested ===

#[tokio::test]
async fn the_telemetry_path_is_configurable_and_other_paths_name_it() {
    let telemetry_path = "/probe/orgdata".parse().unwrap();
    let server = Server::with(
        Settings {
            telemetry_path,
            ..settings(&["127.0.0.1:0"])
        },
        Overview::default,
    )
    .await;
    assert_eq!(
        server.get("/probe/orgdata", &[]).await.status(),
        StatusCode::OK
    );
    assert!(server.text("/").await.contains("href=\"/probe/orgdata\""));
    for path in [
        "/metrics",
        "/probe/orgdata/",
        "/-/",
        "/favicon.ico",
        "/..%2fetc/passwd",
    ] {
        let response = server.get(path, &[]).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        let body = response.text().await.unwrap();
        for known in ["/probe/orgdata", "/-/healthy", "/-/ready", "/."] {
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
        let head = server.request(Method::HEAD, path, &[]).await;
        assert_eq!(head.status().is_success(), path != "/-/ready");
    }
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
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
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(header(&response, name), value, "{path}");
        }
        assert!(
            header(&response, "content-security-policy").contains("default-src 'none'"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn probes_follow_the_application() {
    let server = Server::start().await;
    let status = async |path| server.get(path, &[]).await.status();
    assert_eq!(status("/-/ready").await, StatusCode::SERVICE_UNAVAILABLE);
    server.health.set_ready(true);
    assert_eq!(status("/-/ready").await, StatusCode::OK);
    server.health.watch(Loop::Audit, Duration::from_secs(3600));
    assert_eq!(status("/-/healthy").await, StatusCode::OK);
    server.health.watch(Loop::Tickets, Duration::ZERO);
    assert_eq!(status("/-/healthy").await, StatusCode::SERVICE_UNAVAILABLE);
    let stuck = server.text("/-/healthy").await;
    assert!(
        stuck.contains("tickets") && !stuck.contains("audit"),
        "{stuck}"
    );
}

#[tokio::test]
async fn the_page_escapes_names_and_shows_no_text_of_a_peer() {
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
        .failure(Loop::Audit, "the API answered: sk_live\\/abc");
    let response = server.get("/", &[]).await;
    assert_eq!(
        header(&response, "content-type"),
        "text/html; charset=utf-8"
    );
    // The one style sheet is the one that the policy allows.
    assert!(header(&response, "content-security-policy").contains("style-src 'sha256-"));
    let body = response.text().await.unwrap();
    assert!(
        !body.contains("<script") && body.contains("&lt;script&gt;"),
        "{body}"
    );
    assert!(
        body.contains("failing") && !body.contains("sk_live"),
        "{body}"
    );
    assert!(!server.text("/metrics").await.contains("sk_live"));
}

// === listening ===

#[tokio::test]
async fn every_address_is_served() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let wildcards = [format!("[::]:{free}"), format!("0.0.0.0:{free}")];
    for (addresses, at_least) in [
        (&["127.0.0.1:0", "[::1]:0", "localhost:0"][..], 3),
        (&[":0"], 1),
        (&["[::]:0"], 1),
        (&[&wildcards[0], &wildcards[1]], 2),
    ] {
        let server = Server::with(settings(addresses), Overview::default).await;
        assert!(server.addresses.len() >= at_least);
        for address in &server.addresses {
            let port = address.port();
            let hosts = match address.ip().is_unspecified() {
                true => vec![format!("127.0.0.1:{port}"), format!("[::1]:{port}")],
                false => vec![address.to_string()],
            };
            for host in hosts {
                let response = server
                    .client
                    .get(format!("http://{host}/-/healthy"))
                    .send()
                    .await
                    .unwrap();
                assert_eq!(response.status(), StatusCode::OK, "{host}");
            }
        }
    }
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let error = web::bind(&settings(&[&taken])).await.unwrap_err();
    assert!(matches!(error, BindError::InUse(_)), "{error:?}");
    for (address, reason) in [
        (taken.as_str(), "in use"),
        ("192.0.2.1:0", "no interface of this machine"),
        ("no-such-host.invalid:0", "give an IP address"),
        ("unix:/nonexistent/web.sock", "directory"),
    ] {
        let error = web::bind(&settings(&[address]))
            .await
            .unwrap_err()
            .to_string();
        for part in [address, reason, "--web.listen-address"] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
}

// === hostile and unlucky clients ===

#[tokio::test]
async fn a_client_that_does_not_go_on_is_closed() {
    let server = Server::limited(tight(), None).await;
    for (sent, answer) in [
        (&b""[..], ""),
        (b"GET /metrics HTTP/1.1\r\nhost", ""),
        (b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n", "healthy.\n"),
        (
            b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\nGET",
            "healthy.\n",
        ),
    ] {
        let received = closed(&mut server.send(sent).await).await;
        assert!(
            received.ends_with(answer) && received.is_empty() == answer.is_empty(),
            "{received}"
        );
    }
}

#[tokio::test]
async fn a_client_that_sends_its_headers_bit_by_bit_is_closed() {
    let server = Server::limited(tight(), None).await;
    let mut stream = server.send(b"GET /metrics HTTP/1.1\r\n").await;
    let start = Instant::now();
    while stream.write_all(b"x: y\r\n").await.is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "waited {:?} for headers",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_scraper_keeps_its_connection_between_scrapes() {
    let server = Server::limited(
        Limits {
            idle_timeout: Duration::from_secs(60),
            ..tight()
        },
        None,
    )
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
async fn a_client_that_asks_on_and_reads_nothing_or_a_byte_at_a_time_is_closed() {
    let server = Server::limited(tight(), None).await;
    server.publish_series(100_000);
    let mut stream = server.connect().await;
    let requests = GET.repeat(1000);
    let asked = async { while stream.write_all(&requests).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("the server kept a client that does not read");

    let mut stream = server.send(GET).await;
    let start = Instant::now();
    let mut piece = [0; 4096];
    while matches!(stream.read(&mut piece).await, Ok(1..)) {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "a response took {:?}",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    let requests = b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\nGET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = closed(&mut server.send(requests).await).await;
    assert!(answers.find("200 OK").unwrap() < answers.find("404 Not Found").unwrap());
}

#[tokio::test]
async fn clients_without_progress_do_not_keep_a_scraper_out() {
    let patient = Limits {
        header_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(60),
        ..tight()
    };
    let server = Server::limited(patient, None).await;
    server.publish_series(20_000);
    for sent in [&b""[..], b"GET /", &GET.repeat(50)] {
        let mut clients = Vec::new();
        for _ in 0..100 {
            clients.push(server.send(sent).await);
        }
        for path in ["/metrics", "/-/healthy", "/metrics"] {
            let response = tokio::time::timeout(Duration::from_secs(5), server.get(path, &[]))
                .await
                .unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            response.bytes().await.unwrap();
        }
        // The one without progress for longest was closed.
        closed(&mut clients[0]).await;
    }
}

#[tokio::test]
async fn huge_headers_are_refused() {
    let server = Server::start().await;
    for headers in [
        format!("x: {}\r\n", "y".repeat(64 * 1024)),
        "x: y\r\n".repeat(100),
    ] {
        let mut stream = server
            .send(format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes())
            .await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 431");
    }
}

#[tokio::test]
async fn a_body_is_not_read() {
    let server = Server::start().await;
    for (method, status) in [("POST", "HTTP/1.1 405"), ("GET", "HTTP/1.1 200")] {
        let request =
            format!("{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n");
        let answer = closed(&mut server.send(request.as_bytes()).await).await;
        assert!(answer.starts_with(status), "{answer}");
    }
}

#[tokio::test]
async fn garbage_is_refused_and_the_server_goes_on() {
    let server = Server::start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
    ] {
        let mut stream = server.send(garbage).await;
        let _ = stream.shutdown().await;
        let answer = closed(&mut stream).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
}

// === stopping ===

#[tokio::test]
async fn idle_clients_are_not_waited_for() {
    let mut server = Server::start().await;
    let _fresh = server.connect().await;
    let _partial = server.send(b"GET /metrics HT").await;
    assert_eq!(server.get("/-/healthy", &[]).await.status(), StatusCode::OK);
    let took = server.stop().await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A server whose page takes `pause`, and a request for it that is being answered.
async fn slow_page(pause: Duration) -> (Server, JoinHandle<reqwest::Result<Response>>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let page = {
        let begun = begun.clone();
        move || {
            begun.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(pause);
            Overview::default()
        }
    };
    let settings = Settings {
        limits: tight(),
        ..settings(&["127.0.0.1:0"])
    };
    let server = Server::with(settings, page).await;
    let request = tokio::spawn(server.client.get(&server.url).send());
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (server, request)
}

#[tokio::test]
async fn a_response_under_way_is_finished_unless_it_takes_too_long() {
    let (mut server, request) = slow_page(Duration::from_millis(200)).await;
    server.stop().await;
    assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(
        TcpStream::connect(server.addresses[0]).await.is_err(),
        "still listening"
    );

    let (mut server, request) = slow_page(Duration::from_millis(1500)).await;
    let took = server.stop().await;
    assert!(took < Duration::from_millis(1200), "{took:?}");
    assert!(request.await.unwrap().is_err());
}

// === memory ===

/// The server of the tests below, in a process of its own so that its memory can be measured.
#[tokio::test]
#[ignore = "run by the tests of memory"]
async fn serve_many_series() {
    let config = std::env::var("TEST_WEB_CONFIG")
        .ok()
        .map(|path| WebConfig::load(path.as_ref()).unwrap());
    let server = Server::limited(Limits::default(), config).await;
    server.publish_series(15_000);
    println!("listening {}", server.addresses[0]);
    std::future::pending().await
}

/// Starts the server in another process, and returns its address.
pub(crate) async fn measured(config: &str) -> (tokio::process::Child, SocketAddr) {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args([
        "--exact",
        "web::serve_many_series",
        "--ignored",
        "--nocapture",
    ]);
    if !config.is_empty() {
        child.env("TEST_WEB_CONFIG", config);
    }
    let mut child = child
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the server does not start");
        if let Some((_, address)) = line.split_once("listening ") {
            return (child, address.parse().unwrap());
        }
    }
}

/// Returns the memory of a process in MiB: now, or at its peak.
pub(crate) fn memory(child: &tokio::process::Child, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.split_whitespace()
        .next()
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

#[tokio::test]
async fn clients_that_pipeline_and_never_read_use_little_memory() {
    let (child, address) = measured("").await;
    let client = Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    let scrape = async || {
        client
            .get(format!("http://{address}/metrics"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    assert!(scrape().await.len() > 1_000_000);
    let idle = memory(&child, "VmRSS:");
    let requests = GET.repeat(100);
    let mut clients = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(&requests).await;
        clients.push(stream);
        if number % 60 == 59 {
            scrape().await;
        }
    }
    scrape().await;
    let peak = memory(&child, "VmHWM:");
    assert!(peak < idle + 64, "{idle} MiB idle, {peak} MiB at the peak");
}
