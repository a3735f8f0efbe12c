//! Requests: the address, the query, and the key in one header only.

use orgdata_api::{Filters, Settings};

use crate::peer::{NO_ENTRIES, NO_TICKETS, Peer, json};
use crate::support::{KEY, Subject, settings};

async fn peer() -> Peer {
    Peer::start(|seen, _| {
        json(
            "200 OK",
            if seen.target().contains("tickets") {
                NO_TICKETS
            } else {
                NO_ENTRIES
            },
        )
    })
    .await
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[tokio::test]
async fn the_key_is_a_header_and_nothing_else() {
    let peer = peer().await;
    let subject = Subject::new(&format!("{}/base/", peer.url()));
    subject.audit().await.expect("a page");
    subject.client.ticket_page(7, 14).await.expect("a page");
    let seen = peer.seen();
    assert_eq!(
        (seen[0].target(), seen[1].target()),
        (
            "/base/v1/audit-logs?limit=100",
            "/base/v1/tickets?limit=7&offset=14"
        )
    );
    for request in seen {
        assert_eq!(request.header("x-api-key"), Some(KEY));
        assert_eq!(request.head.matches(KEY).count(), 1, "{}", request.head);
        assert!(
            request
                .header("user-agent")
                .is_some_and(|agent| agent.starts_with("orgdata-exporter/"))
        );
        assert_eq!(request.header("authorization"), None);
    }
}

#[tokio::test]
async fn filters_and_cursors_arrive_unchanged() {
    let peer = peer().await;
    let filters = Filters {
        activity_types: texts(&["A&B", "C=D"]),
        deal_ids: texts(&["42"]),
        actor_emails: texts(&["ada+audit@example.com"]),
        target_emails: texts(&["ünï@example.com", "100%@example.com"]),
    };
    let subject = Subject::with(Settings {
        filters,
        ..settings(&peer.url())
    });
    let page = subject.client.audit_page(5, Some("a+b/c==&x#y z")).await;
    page.expect("a page");
    let target = peer.seen()[0].target().to_owned();
    let url = url::Url::parse(&format!("{}{target}", peer.url())).expect("a URL");
    let pairs = url.query_pairs();
    let query: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        query,
        [
            "limit=5",
            "before=a+b/c==&x#y z",
            "activityTypes[]=A&B",
            "activityTypes[]=C=D",
            "dealIds=42",
            "actorUserEmails=ada+audit@example.com",
            "targetUserEmails[]=ünï@example.com",
            "targetUserEmails[]=100%@example.com",
        ]
    );
    assert!(
        target.contains("actorUserEmails=ada%2Baudit%40example.com"),
        "{target}"
    );
}
