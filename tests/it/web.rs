//! The web surface over real sockets: what scrapers, probes, people and hostile clients get.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orgdata_exporter::metrics::audit::{Delta, EventLabels};
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::web::{self, BindError, Health, Limits, Settings, WebConfig, WebState};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::busy::busy;

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
        telemetry_path: "/metrics".to_owned(),
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
        Self::with(settings(&["127.0.0.1:0"])).await
    }

    pub(crate) async fn limited(limits: Limits, config: Option<WebConfig>) -> Self {
        let settings = Settings {
            limits,
            config,
            ..settings(&["127.0.0.1:0"])
        };
        Self::with(settings).await
    }

    async fn with(settings: Settings) -> Self {
        Self::showing(Metrics::new(Duration::from_millis(1)), settings).await
    }

    async fn showing(metrics: Metrics, settings: Settings) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let health = Health::default();
        let bound = web::bind(&settings).await.unwrap();
        let (addresses, url) = (bound.addresses(), bound.url().unwrap());
        let shutdown = CancellationToken::new();
        let state = WebState {
            metrics: metrics.clone(),
            health: health.clone(),
        };
        let task = Some(tokio::spawn(web::serve(bound, state, shutdown.clone())));
        let client = Client::builder().no_gzip().no_proxy();
        let client = client.pool_max_idle_per_host(0).build().unwrap();
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
        let delta = Delta {
            introduced,
            ..Delta::default()
        };
        self.metrics.audit.publish(delta);
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
    for (accept, content_type, line) in [
        (
            PROMETHEUS,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "# EOF",
        ),
        (
            "*/*",
            "text/plain; version=0.0.4; charset=utf-8",
            "# TYPE orgdata_api_requests_total counter",
        ),
    ] {
        let response = server.get("/metrics", &[("accept", accept)]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "content-type"), content_type);
        assert_eq!(header(&response, "vary"), "accept, accept-encoding");
        assert_eq!(header(&response, "content-encoding"), "");
        let body = response.text().await.unwrap();
        assert!(body.lines().any(|other| other == line));
        // Each request gets current values.
        server.metrics.otlp.records_sent.inc();
        let sent = format!(
            "orgdata_otlp_records_sent_total {}\n",
            server.metrics.otlp.records_sent.get()
        );
        assert!(server.text("/metrics").await.contains(&sent));
    }
}

#[tokio::test]
async fn gzip_is_used_if_it_is_accepted_and_head_has_the_headers_of_get() {
    let server = Server::start().await;
    server.publish_series(10_000);
    let wanted = [("accept", PROMETHEUS), ("accept-encoding", "gzip")];
    let head = server.request(Method::HEAD, "/metrics", &wanted).await;
    let get = server.get("/metrics", &wanted).await;
    assert_eq!(header(&get, "content-encoding"), "gzip");
    for name in ["content-type", "content-encoding", "vary", "cache-control"] {
        assert_eq!(header(&head, name), header(&get, name), "{name}");
    }
    // No length rather than a wrong one: for `HEAD` nothing is rendered.
    assert_eq!(header(&head, "content-length"), "");
    assert!(head.bytes().await.unwrap().is_empty());
    let (compressed, mut body) = (get.bytes().await.unwrap(), String::new());
    let mut decoder = flate2::read::GzDecoder::new(&compressed[..]);
    decoder.read_to_string(&mut body).unwrap();
    assert!(body.contains("orgdata_audit_paused 0\n") && body.contains("actor=\"9999\""));
    assert!(compressed.len() * 4 < body.len());
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
    let telemetry_path = "/probe/orgdata".to_owned();
    let server = Server::with(Settings {
        telemetry_path,
        ..settings(&["127.0.0.1:0"])
    })
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
async fn another_method_is_refused_and_every_response_has_the_security_headers() {
    let server = Server::start().await;
    for path in ["/", "/metrics", "/-/healthy", "/-/ready", "/no"] {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS] {
            let response = server.request(method.clone(), path, &[]).await;
            let (allowed, status) = (
                method == Method::GET || method == Method::HEAD,
                response.status(),
            );
            if !allowed && path != "/no" {
                assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                assert_eq!(header(&response, "allow"), "GET, HEAD");
            } else {
                assert_eq!(
                    status.is_success(),
                    !["/-/ready", "/no"].contains(&path),
                    "{method} {path}"
                );
            }
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
            ] {
                assert_eq!(header(&response, name), value, "{method} {path}");
            }
            assert!(header(&response, "content-security-policy").contains("default-src 'none'"));
        }
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
async fn the_page_says_what_the_exporter_is_doing() {
    let server = Server::showing(busy(), settings(&["127.0.0.1:0"])).await;
    let page = server.text("/").await;
    let texts = page.split('<').filter_map(|part| part.split_once('>'));
    let text: String = texts.map(|(_, text)| text).collect();
    for expected in [
        "Audit logsworkingLast success 0s ago.",
        "Ticketsstarting",
        "Log recordsfailingLast failure 0s ago: connect; the log says more.",
        "Readingpaused: the state file is full",
        "Found late1Malformed0Gaps2",
        "Events by activity typeDEAL_UPDATED49",
        "Ada Lovelace (10)7",
        "Open ticketsBUG BLOCKER1",
        "All ticketsCLOSED BUG1",
        "Consistentyes",
        "Overdue1",
        "Backlog17Sent since the start512Dead letters0State file1.0 MiB",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    server.health.watch(Loop::Audit, Duration::ZERO);
    let page = server.text("/").await;
    assert!(page.contains("<title>Stuck") && page.contains("No progress for 0 s."));
}

#[tokio::test]
async fn the_page_escapes_names_and_shows_no_text_of_a_peer() {
    let evil = "<script>alert(1)</script>\"'&\u{202e}";
    let server = Server::start().await;
    let labels = EventLabels {
        activity_type: evil.into(),
        actor: Some(evil.repeat(5000).into()),
    };
    server.metrics.audit.publish(Delta {
        events: vec![(labels, 1_234_567)],
        ..Delta::default()
    });
    server.metrics.loops.enable(Loop::Audit);
    server.metrics.loops.failure(
        Loop::Audit,
        "unauthorized, HTTP 401",
        "the API answered: sk_live\\/abc",
    );
    let response = server.get("/", &[]).await;
    assert_eq!(
        header(&response, "content-type"),
        "text/html; charset=utf-8"
    );
    assert!(header(&response, "content-security-policy").contains("style-src 'self'"));
    assert!(server.text("/-/style.css").await.contains("body {"));
    let body = response.text().await.unwrap();
    assert!(
        !body.contains("<script") && body.contains("&lt;script&gt;"),
        "{body}"
    );
    assert!(
        body.contains("failing") && body.contains("1234567") && !body.contains("sk_live"),
        "{body}"
    );
    assert!(body.len() < 20_000, "{}", body.len());
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
        let server = Server::with(settings(addresses)).await;
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
    assert!(matches!(error, BindError::InUse(..)), "{error:?}");
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
    let mut stream = server.send(b"GET /metrics HTTP/1.1\r\n").await;
    let start = Instant::now();
    while stream.write_all(b"x: y\r\n").await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(3));
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

    // A client that reads slowly gets only the part that was in the buffers of the system when its time was over.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(server.addresses[0]).await.unwrap();
    stream.write_all(GET).await.unwrap();
    let mut piece = [0; 4096];
    let mut received = stream.read(&mut piece).await.unwrap();
    let (headers, start) = (
        String::from_utf8_lossy(&piece[..received]).into_owned(),
        Instant::now(),
    );
    while start.elapsed() < tight().write_timeout * 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        received += stream.read(&mut piece).await.unwrap_or(0);
    }
    received += closed(&mut stream).await.len();
    let length = headers.split("content-length: ").nth(1).unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    assert!(received < length, "{received} of {length} bytes");
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
async fn odd_requests_are_answered_or_refused_and_the_server_goes_on() {
    let server = Server::start().await;
    let request =
        |headers: &str| format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n").into_bytes();
    let endless = "content-length: 1000000000000\r\n";
    for (sent, answer) in [
        (
            request(&format!("x: {}\r\n", "y".repeat(64 * 1024))),
            "HTTP/1.1 431",
        ),
        (request(&"x: y\r\n".repeat(100)), "HTTP/1.1 431"),
        // A body is not read.
        (request(endless), "HTTP/1.1 200"),
        (
            format!("POST / HTTP/1.1\r\nhost: x\r\n{endless}\r\n").into(),
            "HTTP/1.1 405",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00".to_vec(), ""),
        (b"GET\r\n\r\n".to_vec(), "HTTP/1.1 400"),
        (b"\0\0\0\0\r\n\r\n".to_vec(), "HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\na b: c\r\n\r\n".to_vec(), "HTTP/1.1 400"),
    ] {
        let mut stream = server.send(&sent).await;
        let _ = stream.shutdown().await;
        let received = closed(&mut stream).await;
        assert!(
            received.starts_with(answer),
            "{received} instead of {answer}"
        );
    }
    // Pipelined requests are answered in order.
    let requests = b"GET /-/ready HTTP/1.1\r\nhost: x\r\n\r\nGET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = closed(&mut server.send(requests).await).await;
    assert!(answers.find(" 503 ").unwrap() < answers.find(" 404 ").unwrap());
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

/// A server whose scrape takes `pause`, and one that is being answered.
async fn slow_scrape(pause: Duration) -> (Server, JoinHandle<reqwest::Result<Response>>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let settings = Settings {
        limits: tight(),
        ..settings(&["127.0.0.1:0"])
    };
    let server = Server::with(settings).await;
    // It is asked for by each scrape.
    let certificate = {
        let begun = begun.clone();
        move || {
            begun.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(pause);
            None
        }
    };
    let certificates = &server.metrics.certificates;
    certificates.set(vec![("web", Box::new(certificate))]);
    let scrape = server.client.get(format!("{}/metrics", server.url));
    let request = tokio::spawn(scrape.send());
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (server, request)
}

#[tokio::test]
async fn a_response_under_way_is_finished_unless_it_takes_too_long() {
    let (mut server, request) = slow_scrape(Duration::from_millis(200)).await;
    server.stop().await;
    assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(
        TcpStream::connect(server.addresses[0]).await.is_err(),
        "still listening"
    );

    let (mut server, request) = slow_scrape(Duration::from_millis(1500)).await;
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
    server.publish_series(10_000);
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
        .pool_max_idle_per_host(0)
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
    assert!(scrape().await.len() > 800_000);
    let idle = memory(&child, "VmRSS:");
    let requests = GET.repeat(100);
    let mut clients = Vec::new();
    for number in 0..260 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(&requests).await;
        clients.push(stream);
        if number % 100 == 99 {
            scrape().await;
        }
    }
    scrape().await;
    let peak = memory(&child, "VmHWM:");
    assert!(peak < idle + 64, "{idle} MiB idle, {peak} MiB at the peak");
}
