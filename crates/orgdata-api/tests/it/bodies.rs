//! Bodies: compressed, large, and with unexpected fields and bytes.

use std::io::Write as _;

use crate::peer::{Peer, Reply, answer, head, json};
use crate::support::Subject;

const PAGE: &str = r#"{"items":[ {"id": "a"}, "odd" ,3],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":true,"new":1}"#;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

#[tokio::test]
async fn a_page_is_a_page_however_it_is_sent() {
    let gzipped = gzip(PAGE.as_bytes());
    let fields: Vec<String> = (0..150).map(|n| format!("x-rule-{n}: passed")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let cut = head("200 OK", &[], PAGE.len() + 9) + PAGE;
    let without_end = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{PAGE}\r\n",
        PAGE.len()
    );
    for (name, reply) in [
        ("no type", answer("200 OK", &[], PAGE)),
        (
            "text",
            answer("200 OK", &["content-type: text/plain"], PAGE),
        ),
        ("part", json("206 Partial Content", PAGE)),
        ("150 fields", answer("200 OK", &fields, PAGE)),
        ("a wrong length", Reply::Bytes(cut.into())),
        ("no last chunk", Reply::Bytes(without_end.into())),
        ("spaces", json("200 OK", format!("\n {PAGE} \r\n"))),
        (
            "gzip",
            answer("200 OK", &["content-encoding: gzip"], gzipped),
        ),
    ] {
        let peer = Peer::always(reply).await;
        let subject = Subject::new(&peer.url());
        let page = subject.audit().await.expect(name);
        let items: Vec<&str> = page.items().collect();
        assert_eq!(items, [r#"{"id": "a"}"#, "\"odd\"", "3"], "{name}");
        assert_eq!(page.end_cursor.as_deref(), Some("e"), "{name}");
        assert!(page.has_more, "{name}");
        // What it holds, and not what was sent.
        let bytes = subject.reported().bytes;
        assert_eq!(bytes, page.body().len() as u64, "{name}");
        let request = &peer.seen()[0];
        let accepted = request.header("accept-encoding");
        assert!(accepted.is_some_and(|it| it.contains("gzip")), "{name}");
    }
}

#[tokio::test]
async fn odd_bytes_and_deep_nesting_hide_no_page() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        &b"{\"items\":[{\"id\":\"caf\xe9\"}]}"[..],
        br#"{"items":[{"id":"\ud800"}]}"#,
        format!(r#"{{"items":[{{"x":{deep}}}],"more":{deep}}}"#).as_bytes(),
    ] {
        let peer = Peer::always(json("200 OK", body)).await;
        let page = Subject::new(&peer.url()).audit().await;
        assert_eq!(page.expect("a page").len(), 1);
    }
}

#[tokio::test]
async fn a_page_of_more_than_16_mib_is_cut_off() {
    let start = b"HTTP/1.1 200 OK\r\n\r\n{\"items\":[".to_vec();
    // 64 MiB of spaces in some 64 kB.
    let flood = gzip(&vec![b' '; 64 << 20]);
    for (name, reply) in [
        ("endless", Reply::Endless(start, vec![b' '; 1 << 20])),
        ("gzip", answer("200 OK", &["content-encoding: gzip"], flood)),
    ] {
        let peer = Peer::always(reply).await;
        let error = Subject::new(&peer.url()).failed().await;
        assert_eq!(error.reason().as_ref(), "too_large", "{name}");
        // The same request would bring the same answer.
        assert_eq!(peer.count(), 1, "{name}");
    }
}
