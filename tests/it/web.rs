//! The web surface over real sockets: what scrapers, probes, people and hostile clients get.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exporter_web::{Limits, WebArgs, WebConfig};
use orgdata_exporter::endpoints;
use orgdata_exporter::health::{Health, Loop};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::{Changes, EventLabels};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::binary::{Scrape, launch};
use crate::support::busy::busy;

pub(crate) const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4";

/// One request of a client that does nothing else with the connection.
pub(crate) const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";

pub(crate) const GET_HEALTH: &[u8] = b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n";

/// A server in this process; it stops with the test.
pub(crate) struct Server {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) url: String,
    metrics: Metrics,
    health: Health,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
    client: Client,
}

/// What a server is started with.
struct Setup {
    args: WebArgs,
    config: WebConfig,
    limits: Limits,
    metrics: Metrics,
}

/// Deadlines that are short enough to wait for, and long enough for a busy machine.
pub(crate) fn tight() -> Limits {
    Limits {
        connections: 8,
        header_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(600),
        shutdown_grace: Duration::from_millis(500),
    }
}

// === impl Server ===

impl Server {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn limited(limits: Limits, config: WebConfig) -> Self {
        Self::with(|setup| (setup.limits, setup.config) = (limits, config)).await
    }

    async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup {
            args: WebArgs {
                listen_addresses: vec!["127.0.0.1:0".to_owned()],
                config_file: None,
                telemetry_path: "/metrics".to_owned(),
            },
            config: WebConfig::default(),
            limits: Limits::default(),
            metrics: Metrics::new(Duration::from_millis(1)),
        };
        change(&mut setup);
        let bound = exporter_web::bind(&setup.args, setup.config).await;
        let mut bound = bound.unwrap();
        bound.limits = setup.limits;
        let (addresses, url) = (bound.addresses(), bound.url().unwrap());
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        health.set_ready();
        let (metrics, path) = (setup.metrics, setup.args.telemetry_path);
        let router = endpoints::router(metrics.clone(), health.clone(), &path);
        let served = exporter_web::serve(bound, router, shutdown.clone().cancelled_owned());
        let task = Some(tokio::spawn(served));
        Self {
            addresses,
            url,
            metrics,
            health,
            shutdown,
            task,
            client: client(),
        }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request(Method::GET, path, headers).await
    }

    async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    async fn text(&self, path: &str) -> String {
        self.get(path, &[]).await.text().await.unwrap()
    }

    async fn status(&self, path: &str) -> u16 {
        self.get(path, &[]).await.status().as_u16()
    }

    /// Connects and sends something; the server may close before everything is sent.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.addresses[0]).await.unwrap();
        let _ = stream.write_all(bytes).await;
        stream
    }

    /// Counts some events of a type for each of these actors.
    fn publish(&self, activity_type: &str, actors: impl Iterator<Item = String>, count: u64) {
        let labels = |actor: String| EventLabels {
            activity_type: activity_type.into(),
            actor: Some(actor.into()),
        };
        self.metrics.audit.publish(Changes {
            events: actors.map(|actor| (labels(actor), count)).collect(),
            ..Changes::default()
        });
    }

    fn publish_series(&self, count: u32) {
        let actors = (0..count).map(|number| number.to_string());
        self.publish("AN_ACTIVITY_TYPE_OF_USUAL_LENGTH", actors, 1);
    }
}

/// A client that opens a connection for each request.
fn client() -> Client {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_gzip().no_proxy();
    let client = client.pool_max_idle_per_host(0);
    client.timeout(Duration::from_secs(60)).build().unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// Reads until the server closes; panics if it does not.
pub(crate) async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    // A reset is as good as an end.
    let _ = tokio::time::timeout(Duration::from_secs(5), end)
        .await
        .expect("the server did not close the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_client_gets_the_format_and_the_encoding_that_it_accepts() {
    let server = Server::start().await;
    server.publish_series(10_000);
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, encoding, content_type, line) in [
        (PROMETHEUS, "gzip", openmetrics, "# EOF\n"),
        ("*/*", "", text, "orgdata_audit_paused 0\n"),
    ] {
        let wanted = [("accept", accept), ("accept-encoding", encoding)];
        let head = server.request(Method::HEAD, "/metrics", &wanted).await;
        let get = server.get("/metrics", &wanted).await;
        for response in [&get, &head] {
            assert_eq!(header(response, "content-type"), content_type);
            assert_eq!(header(response, "content-encoding"), encoding);
            assert_eq!(header(response, "vary"), "accept, accept-encoding");
        }
        assert!(head.bytes().await.unwrap().is_empty());
        let (bytes, mut body) = (get.bytes().await.unwrap(), String::new());
        if encoding == "gzip" {
            let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
            decoder.read_to_string(&mut body).unwrap();
            assert!(bytes.len() * 4 < body.len());
        } else {
            body = String::from_utf8(bytes.to_vec()).unwrap();
        }
        assert!(body.contains(line) && body.contains("actor=\"9999\""));
    }
}

#[tokio::test]
async fn a_scraper_sees_increases_after_the_hold_and_curl_always_sees_the_truth() {
    let server = Server::start().await;
    server.publish("A", ["1".to_owned()].into_iter(), 3);
    let shown = async |accept: &str| {
        let response = server.get("/metrics", &[("accept", accept)]).await;
        let scrape = Scrape(response.text().await.unwrap());
        // Longer than the hold.
        tokio::time::sleep(Duration::from_millis(5)).await;
        scrape.sum("orgdata_audit_events_total")
    };
    let explains = async || {
        server
            .text("/")
            .await
            .contains(" in Prometheus, for up to ")
    };
    assert_eq!(shown("*/*").await, 3.0);
    assert!(explains().await, "why a scraper sees less");
    // Neither that nor this is a scrape: a complete response to a scraper is.
    let scraper = ("accept", PROMETHEUS);
    server.request(Method::HEAD, "/metrics", &[scraper]).await;
    assert_eq!(shown(PROMETHEUS).await, 0.0);
    assert_eq!(shown("*/*").await, 3.0);
    assert_eq!(shown(PROMETHEUS).await, 3.0);
    assert!(!explains().await, "the hold is over");
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
            status = server.status("/-/healthy") => {
                assert_eq!(status, 200);
                answered += 1;
            }
        }
    }
    assert!(answered >= 3, "{answered} responses during one scrape");
}

#[tokio::test]
async fn the_telemetry_path_is_configurable_and_other_paths_name_it() {
    let path = "/probe/orgdata".to_owned();
    let server = Server::with(|setup| setup.args.telemetry_path = path).await;
    assert_eq!(server.status("/probe/orgdata").await, 200);
    // Links are relative, for a proxy that serves the page below another path.
    let page = server.text("/").await;
    assert!(page.contains("href=\"./probe/orgdata\""), "{page}");
    assert!(!page.contains("href=\"/"), "{page}");
    let other = server.get("/metrics", &[]).await;
    assert_eq!(other.status(), StatusCode::NOT_FOUND);
    let body = other.text().await.unwrap();
    assert!(body.contains("/probe/orgdata"), "{body}");
}

#[tokio::test]
async fn another_method_is_refused_and_every_response_has_the_security_headers() {
    let server = Server::start().await;
    for (path, method, expected) in [
        ("/", Method::GET, 200),
        ("/metrics", Method::GET, 200),
        ("/metrics", Method::POST, 405),
        ("/-/healthy", Method::OPTIONS, 405),
        ("/no", Method::GET, 404),
    ] {
        let response = server.request(method, path, &[]).await;
        assert_eq!(response.status(), expected, "{path}");
        let allow = if expected == 405 { "GET,HEAD" } else { "" };
        assert_eq!(header(&response, "allow"), allow);
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(header(&response, "x-frame-options"), "DENY");
        assert_eq!(header(&response, "cache-control"), "no-store");
        assert!(header(&response, "content-security-policy").contains("default-src 'none'"));
    }
}

#[tokio::test]
async fn a_stuck_loop_is_named() {
    let server = Server::start().await;
    assert_eq!(server.status("/-/healthy").await, 200);
    server.metrics.loops.enable(Loop::Tickets);
    let _tickets = server.health.watched(Loop::Tickets);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
    let _audit = server.health.watched(Loop::Audit);
    assert_eq!(server.status("/-/healthy").await, 503);
    let stuck = server.text("/-/healthy").await;
    let is_named = stuck.contains("tickets") && !stuck.contains("audit");
    assert!(is_named, "{stuck}");
    let page = server.text("/").await;
    assert!(page.contains("<title>Stuck") && page.contains("No progress for 1h."));
}

#[tokio::test]
async fn the_page_says_what_the_exporter_is_doing() {
    let server = Server::with(|setup| setup.metrics = busy()).await;
    let page = server.text("/").await;
    let texts = page.split('<').filter_map(|part| part.split_once('>'));
    let text: String = texts.map(|(_, text)| text).collect();
    for expected in [
        "Failing. ",
        "Audit logsworkingLast success ",
        "Ticketsstarting",
        "Log recordsfailingLast failure ",
        " ago: connect; the log says more.",
        "Readingpaused: the state file is full",
        "Gaps2",
        "DEAL_UPDATED49",
        "10Ada Lovelace7",
        "BUGBLOCKER1",
        "CLOSEDBUG1",
        "Backlog17",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
}

#[tokio::test]
async fn the_page_escapes_names_and_shows_no_text_of_a_peer() {
    let evil = "<script>alert(1)</script>\"'&\u{202e}";
    let server = Server::start().await;
    server.publish(evil, [evil.repeat(5000)].into_iter(), 1_234_567);
    server.metrics.loops.enable(Loop::Audit);
    let said = "the API answered: sk_live\\/abc";
    server
        .metrics
        .loops
        .failure(Loop::Audit, "unauthorized", said);
    let response = server.get("/", &[]).await;
    assert!(header(&response, "content-security-policy").contains("style-src 'self'"));
    assert!(server.text("/-/style.css").await.contains("body {"));
    let body = response.text().await.unwrap();
    let shown = ["&lt;script&gt;", "failing", "1234567"];
    assert!(shown.iter().all(|part| body.contains(part)), "{body}");
    let is_tame = !body.contains("<script") && !body.contains("sk_live");
    assert!(is_tame && body.len() < 20_000, "{body}");
    assert!(!server.text("/metrics").await.contains("sk_live"));
}

#[tokio::test]
async fn every_address_is_served() {
    for (given, hosts) in [
        (vec!["127.0.0.1:0", "[::1]:0"], ["127.0.0.1", "[::1]"]),
        (vec![":0"], ["127.0.0.1", "[::1]"]),
    ] {
        let addresses = given.iter().map(ToString::to_string).collect();
        let server = Server::with(|setup| setup.args.listen_addresses = addresses).await;
        for (host, address) in hosts.iter().zip(server.addresses.iter().cycle()) {
            let url = format!("http://{host}:{}/-/healthy", address.port());
            let response = server.client.get(&url).send().await.unwrap();
            assert_eq!(response.status(), 200, "{url}");
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_go_on_is_closed() {
    let server = Server::limited(tight(), WebConfig::default()).await;
    for (sent, answer) in [
        (&b""[..], ""),
        (b"GET /metrics HTTP/1.1\r\nhost", ""),
        (GET_HEALTH, "healthy.\n"),
        (&[GET_HEALTH, b"GET"].concat(), "healthy.\n"),
    ] {
        let received = closed(&mut server.send(sent).await).await;
        assert!(received.ends_with(answer), "{received}");
        assert_eq!(received.is_empty(), answer.is_empty(), "{received}");
    }
    let mut stream = server.send(b"GET /metrics HTTP/1.1\r\n").await;
    let start = Instant::now();
    while stream.write_all(b"x: y\r\n").await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(3));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Clients that are idle are not waited for.
#[tokio::test]
async fn a_response_under_way_is_finished_unless_it_takes_too_long() {
    for (millis, is_finished) in [(200, true), (1500, false)] {
        let mut server = Server::limited(tight(), WebConfig::default()).await;
        let begun = Arc::new(AtomicBool::new(false));
        let has_begun = begun.clone();
        // It is asked for by each scrape.
        let certificate = move || {
            has_begun.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(millis));
            None
        };
        let certificates = &server.metrics.certificates;
        certificates.set(vec![("web", Box::new(certificate))]);
        let scrape = server.client.get(format!("{}/metrics", server.url));
        let scrape = tokio::spawn(scrape.send());
        while !begun.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _idle = server.send(b"").await;
        server.shutdown.cancel();
        server.task.take().unwrap().await.unwrap();
        let answered = scrape.await.unwrap();
        assert_eq!(answered.is_ok(), is_finished, "{answered:?}");
        let connected = TcpStream::connect(server.addresses[0]).await;
        assert!(connected.is_err(), "still listening");
    }
}

/// The server of the tests below, in a process of its own so that its memory can be measured.
#[tokio::test]
#[ignore = "run by the tests of hostile clients"]
async fn serve_many_series() {
    let config = std::env::var("TEST_WEB_CONFIG").ok();
    let config = config.map(|path| WebConfig::load(path.as_ref()).unwrap());
    // The usual limits with a shorter time, so that the tests take less.
    let limits = Limits {
        header_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = Server::limited(limits, config.unwrap_or_default()).await;
    server.publish_series(10_000);
    println!("listening {}", server.addresses[0]);
    std::future::pending().await
}

/// Asserts that a scrape is answered although there are as many hostile clients as there may be connections, and that they use little memory of
/// a server in another process.
pub(crate) async fn assert_bounded<T>(
    config: Option<&Path>,
    client: &Client,
    connect: impl AsyncFn(SocketAddr) -> T,
) {
    let test = ["--exact", "web::serve_many_series", "--ignored"];
    let launch = launch(&test).arg("--nocapture");
    let launch = launch.program(std::env::current_exe().unwrap());
    let launch = config
        .into_iter()
        .fold(launch, |launch, path| launch.env("TEST_WEB_CONFIG", path));
    let server = launch.start();
    let is_it = |line: &str| line.contains("listening ");
    let line = server.stdout().until("its address", is_it).await;
    let (_, address) = line.split_once("listening ").unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let scheme = if config.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://localhost:{}/metrics", address.port());
    let mut connected = Vec::new();
    for _ in 0..Limits::default().connections {
        connected.push(connect(address).await);
    }
    let scrape = client.get(&url).send().await.unwrap();
    assert!(scrape.text().await.unwrap().len() > 800_000);
    let [_, peak] = server.memory();
    assert!(peak < 64.0, "{peak} MiB at the peak");
}

#[tokio::test]
async fn clients_that_do_not_end_a_request_or_never_read_stop_no_scrape() {
    for sent in [b"GET /metrics HTTP/1.1\r\nhost", &*GET.repeat(50)] {
        assert_bounded(None, &client(), async |address| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            let _ = stream.write_all(sent).await;
            stream
        })
        .await;
    }
}

/// Each of them reads a text of its own, and slowly enough to keep it for longer than a scrape may take.
#[tokio::test]
async fn slow_readers_delay_no_scrape() {
    let limits = Limits {
        write_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let server = Server::limited(limits, WebConfig::default()).await;
    server.publish_series(10_000);
    let mut readers = Vec::new();
    for _ in 0..40 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut reader = socket.connect(server.addresses[0]).await.unwrap();
        reader.write_all(GET).await.unwrap();
        let begun = tokio::time::timeout(Duration::from_secs(10), reader.read_u8());
        begun.await.expect("it waits for others").unwrap();
        readers.push(reader);
    }
    let scrape = server.get("/metrics", &[("accept", PROMETHEUS)]);
    let scrape = tokio::time::timeout(Duration::from_secs(10), scrape);
    let text = scrape.await.expect("it waits for others").text();
    assert!(text.await.unwrap().ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_request_with_large_or_many_headers_is_refused_and_a_body_is_not_read() {
    let server = Server::start().await;
    for (headers, answer) in [
        (format!("x: {}\r\n", "y".repeat(64 * 1024)), "HTTP/1.1 431"),
        ("x: y\r\n".repeat(100), "HTTP/1.1 431"),
        (
            "content-length: 1000000000000\r\n".to_owned(),
            "HTTP/1.1 200",
        ),
    ] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let mut stream = server.send(request.as_bytes()).await;
        let _ = stream.shutdown().await;
        let received = closed(&mut stream).await;
        assert!(received.starts_with(answer), "{received}: {answer}");
    }
}
