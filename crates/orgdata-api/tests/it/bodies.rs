//! Bodies: compressed, large, and with unexpected fields and bytes.

use std::io::Write as _;

use crate::peer::{Peer, Reply, answer, json};
use crate::support::Subject;

const PAGE: &str = r#"{"items":[{"id":"a"},{"id":"b"}],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":true}"#;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

#[tokio::test]
async fn a_compressed_page_is_read_and_counted_as_what_it_holds() {
    let peer = Peer::always(answer(
        "200 OK",
        &["content-type: application/json", "content-encoding: gzip"],
        gzip(PAGE.as_bytes()),
    ))
    .await;
    let subject = Subject::new(&peer.url());
    let page = subject.audit().await.expect("a page");
    assert_eq!(
        page.items().collect::<Vec<_>>(),
        [r#"{"id":"a"}"#, r#"{"id":"b"}"#]
    );
    assert_eq!(page.end_cursor.as_deref(), Some("e"));
    assert!(
        peer.seen()[0]
            .header("accept-encoding")
            .is_some_and(|accepted| accepted.contains("gzip"))
    );
    assert_eq!(subject.reported().bytes, PAGE.len() as u64);
}

#[tokio::test]
async fn a_page_is_a_page_whatever_its_content_type_and_its_bytes() {
    let odd = [
        &br#"{"items":[{"id":"a","title":"caf"#[..],
        b"\xe9",
        br#""}]}"#,
    ]
    .concat();
    for reply in [
        answer("200 OK", &[], PAGE),
        answer("200 OK", &["content-type: text/plain"], PAGE),
        answer(
            "206 Partial Content",
            &["content-type: application/vnd.api+json"],
            PAGE,
        ),
        json("200 OK", [b"\n ", PAGE.as_bytes(), b" \r\n"].concat()),
        json("200 OK", &odd),
        json("200 OK", r#"{"items":[{"id":"\ud800"}]}"#),
    ] {
        let peer = Peer::always(reply.clone()).await;
        assert!(
            !Subject::new(&peer.url())
                .audit()
                .await
                .expect("a page")
                .is_empty(),
            "{reply:?}"
        );
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"items\":[".to_vec();
    let peer = Peer::always(Reply::Endless(start, vec![b' '; 1 << 20])).await;
    let subject = Subject::new(&peer.url());
    let error = subject.failed().await;
    assert_eq!(
        error.to_string(),
        "the answer is larger than 16777216 bytes"
    );
    assert!(subject.reported().bytes < 18_000_000);
    // The same request would bring the same answer.
    assert_eq!(peer.count(), 1);
}

#[tokio::test]
async fn a_compressed_flood_is_cut_off_too() {
    // 64 MiB of spaces in some 64 kB.
    let body = gzip(&[br#"{"items":["#.to_vec(), vec![b' '; 64 << 20]].concat());
    let peer = Peer::always(answer("200 OK", &["content-encoding: gzip"], body)).await;
    assert_eq!(
        Subject::new(&peer.url()).failed().await.reason().as_str(),
        "too_large"
    );
}
