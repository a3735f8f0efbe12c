//! The example answers, also over a bare socket.

#[allow(dead_code, reason = "its main function is not run")]
#[path = "../examples/uptime.rs"]
mod uptime;

use clap::Parser as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn it_shows_its_metric_and_its_page() {
    let flags = ["uptime", "--web.listen-address=127.0.0.1:0"];
    let web = uptime::Flags::parse_from(flags).web;
    let bound = exporter_web::bind(&web, web.config().unwrap())
        .await
        .unwrap();
    let address = bound.addresses()[0];
    let router = uptime::router(&web.telemetry_path);
    tokio::spawn(exporter_web::serve(bound, router, std::future::pending()));
    for (path, text) in [
        ("/metrics", "uptime_seconds 0\n"),
        ("/", "The metrics are at /metrics.\n"),
        ("/", "x-frame-options: DENY\r\n"),
        ("/no", "HTTP/1.1 404"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(text), "{path}: {answer}");
    }
}
