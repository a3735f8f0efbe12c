//! Clients that begin and do not end, over TLS.

use std::time::{Duration, Instant};

use orgdata_exporter::web::Limits;
use reqwest::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::tls::connect;
use super::{Server, TLS, client};

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

/// The first bytes of a handshake: a record of 512 bytes, of which five are there.
const BEGUN: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03";

async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut bytes))
        .await
        .expect("the server did not close the connection");
}

async fn scrape(server: &Server) -> StatusCode {
    client()
        .build()
        .unwrap()
        .get(server.https("/metrics"))
        .send()
        .await
        .unwrap()
        .status()
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    for beginning in [&b""[..], BEGUN] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        closed(&mut stream).await;
    }
}

#[tokio::test]
async fn a_handshake_that_comes_bit_by_bit_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(BEGUN).await.unwrap();
    let start = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while stream.write_all(b"x").await.is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "a handshake was awaited for {:?}",
            start.elapsed()
        );
        pace.tick().await;
    }
}

#[tokio::test]
async fn many_unfinished_handshakes_do_not_keep_a_scraper_out() {
    let server = Server::limited(
        TLS,
        Limits {
            header_timeout: Duration::from_secs(60),
            ..tight()
        },
    )
    .await;
    let mut begun = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(BEGUN).await;
        begun.push(stream);
    }
    for _ in 0..5 {
        assert_eq!(scrape(&server).await, StatusCode::OK);
    }
    closed(&mut begun[0]).await;
}

#[tokio::test]
async fn a_client_that_says_nothing_after_its_handshake_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let mut stream = connect(&server, &[], &[protocol]).await.unwrap();
        closed(&mut stream).await;
    }
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;

/// The beginning of an HTTP/2 connection whose client takes no byte of any answer: its window is 0.
fn preface() -> Vec<u8> {
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
    ]
    .concat()
}

/// `GET https://x/`, whole.
fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0b101, stream, &[0x82, 0x87, 0x84, 0x41, 1, b'x'])
}

#[tokio::test]
async fn a_client_of_http2_that_takes_no_answer_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    let mut stream = connect(&server, &[], &[b"h2"]).await.unwrap();
    stream
        .write_all(&[preface(), get(1), get(3)].concat())
        .await
        .unwrap();
    closed(&mut stream).await;
    assert_eq!(scrape(&server).await, StatusCode::OK);
}

#[tokio::test]
async fn clients_of_http2_that_take_no_answer_do_not_keep_a_scraper_out_for_long() {
    let server = Server::limited(TLS, tight()).await;
    let mut greedy = Vec::new();
    for _ in 0..tight().connections {
        let mut stream = connect(&server, &[], &[b"h2"]).await.unwrap();
        stream
            .write_all(&[preface(), get(1)].concat())
            .await
            .unwrap();
        greedy.push(stream);
    }
    let start = Instant::now();
    let client = client().build().unwrap();
    while client.get(server.https("/metrics")).send().await.is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "kept out for {:?}",
            start.elapsed()
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn headers_of_http2_that_never_end_are_closed() {
    let server = Server::limited(TLS, tight()).await;
    let mut stream = connect(&server, &[], &[b"h2"]).await.unwrap();
    // Without the flag that ends the headers.
    stream
        .write_all(&[preface(), frame(HEADERS, 0, 1, &[0x82])].concat())
        .await
        .unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_connection_of_http2_is_kept_between_scrapes_and_closed_when_it_stays_silent() {
    let server = Server::limited(
        TLS,
        Limits {
            idle_timeout: Duration::from_secs(2),
            ..tight()
        },
    )
    .await;
    // Raw, so that the test sees the end of it.
    let mut stream = connect(&server, &[], &[b"h2"]).await.unwrap();
    stream
        .write_all(
            &[
                &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
                &frame(SETTINGS, 0, 0, &[]),
                &get(1),
            ]
            .concat(),
        )
        .await
        .unwrap();
    let asked = Instant::now();
    closed(&mut stream).await;
    assert!(
        asked.elapsed() >= Duration::from_millis(1500),
        "closed after {:?}, which is sooner than it may be silent",
        asked.elapsed()
    );
}

#[tokio::test]
async fn garbage_after_the_handshake_is_refused_and_the_server_goes_on() {
    let server = Server::limited(TLS, tight()).await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let mut stream = connect(&server, &[], &[protocol]).await.unwrap();
        stream.write_all(&[0xff; 100]).await.unwrap();
        closed(&mut stream).await;
    }
    assert_eq!(scrape(&server).await, StatusCode::OK);
}
