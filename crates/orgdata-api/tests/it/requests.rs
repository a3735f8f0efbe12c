//! Requests: the address, the query, and the key in one header only.

use orgdata_api::{ClientSettings, Filters};

use crate::peer::{NO_TICKETS, Peer, json};
use crate::support::{KEY, Subject, settings};

#[tokio::test]
async fn the_key_is_a_header_and_nothing_else() {
    let peer = Peer::always(json("200 OK", NO_TICKETS)).await;
    let subject = Subject::new(&format!("{}/base/", peer.url()));
    subject.audit().await.expect("a page");
    subject.client.ticket_page(7, 14).await.expect("a page");
    let requests = peer.seen();
    let targets = [
        "/base/v1/audit-logs?limit=100",
        "/base/v1/tickets?limit=7&offset=14",
    ];
    for (request, target) in requests.iter().zip(targets) {
        assert_eq!(request.target(), target);
        assert_eq!(request.header("x-api-key"), Some(KEY));
        assert_eq!(request.head.matches(KEY).count(), 1, "{}", request.head);
        let agent = request.header("user-agent").unwrap_or_default();
        assert!(agent.starts_with("orgdata-exporter/"), "{agent}");
    }
}

#[tokio::test]
async fn filters_and_cursors_arrive_unchanged() {
    let peer = Peer::always(json("200 OK", NO_TICKETS)).await;
    let texts = |values: [&str; 2]| values.map(str::to_owned).to_vec();
    let subject = Subject::with(ClientSettings {
        filters: Filters {
            activity_types: texts(["A&B", "C=D"]),
            deal_ids: vec!["42".to_owned()],
            actor_emails: vec!["ada+audit@example.com".to_owned()],
            target_emails: texts(["ünï@example.com", "100%@example.com"]),
        },
        ..settings(&peer.url())
    });
    let page = subject.client.audit_page(5, Some("a+b/c==&x#y z")).await;
    page.expect("a page");
    let requests = peer.seen();
    let query: Vec<&str> = requests[0].target().split(['?', '&']).collect();
    assert_eq!(
        query,
        [
            "/v1/audit-logs",
            "limit=5",
            "before=a%2Bb%2Fc%3D%3D%26x%23y+z",
            "activityTypes%5B%5D=A%26B",
            "activityTypes%5B%5D=C%3DD",
            "dealIds=42",
            "actorUserEmails=ada%2Baudit%40example.com",
            "targetUserEmails%5B%5D=%C3%BCn%C3%AF%40example.com",
            "targetUserEmails%5B%5D=100%25%40example.com",
        ]
    );
}
