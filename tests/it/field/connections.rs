//! A client is made anew after a request that timed out or broke, after a minute of nothing but errors, and every five minutes.
//!
//! Without that an exporter needs a restart if: a connection goes silent without an end; a name moves to another address while
//! the old server goes on answering with errors, or with what is no longer true; a certificate of an authority, or the
//! client's own, is replaced. A file that is half written at that moment must not stop it, nor an old connection stay in use.

use std::time::Duration;

use rustls::ServerConfig;
use tokio::time::advance;

use super::peers::{Event, Files, PROTOCOLS, Relay, Server, Subject, presenting};
use crate::support::captured::Captured;
use crate::support::http_peer::Clock;

#[tokio::test(start_paused = true)]
async fn connections_that_go_silent_cost_one_time_out() {
    let clock = Clock::hold();
    for protocol in PROTOCOLS {
        let server = Server::good(protocol).await;
        let relay = Relay::new(&server, None).await;
        let subject = Subject::new(protocol, relay.address, None).unwrap();
        // Two at a time, so that there are two connections.
        let both = tokio::join!(subject.ask(), subject.ask());
        assert_eq!(both, (Ok(()), Ok(())), "{protocol}");
        relay.event.send_replace(Event::Silence);
        let late = clock.run(subject.ask()).await.expect_err(protocol);
        assert!(late.contains("no answer within 10s"), "{protocol}: {late}");
        assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
    }
}

/// That it is followed within five minutes if the old server works, `crates/connections` tests.
#[tokio::test(start_paused = true)]
async fn a_name_that_moved_is_followed_after_a_minute_of_errors() {
    let _clock = Clock::hold();
    for (protocol, status) in [
        ("api", 404),
        ("http/protobuf", 404),
        ("http/protobuf", 503),
        ("grpc", 503),
    ] {
        let old = Server::answering(protocol, status).await;
        let relay = Relay::new(&old, None).await;
        let subject = Subject::new(protocol, relay.address, None).unwrap();
        assert!(subject.ask().await.is_err(), "{protocol}");
        let new = Server::good(protocol).await;
        relay.route.lock().unwrap().server = new.address;
        for seconds in [15, 30, 45, 60] {
            advance(Duration::from_secs(15)).await;
            let answer = subject.ask().await;
            assert_eq!(answer.is_ok(), seconds == 60, "{protocol}: {answer:?}");
        }
    }
}

/// The old client goes on while the file is half written, with one warning.
#[tokio::test(start_paused = true)]
async fn a_replaced_authority_is_trusted_without_a_restart() {
    let clock = Clock::hold();
    for protocol in PROTOCOLS {
        let server = Server::good(protocol).await;
        let relay = Relay::new(&server, Some(presenting("server", None))).await;
        let files = Files::new("ca.pem", "client");
        let subject = Subject::new(protocol, relay.address, Some(&files)).unwrap();
        let log = Captured::begin();
        assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
        std::fs::write(files.path("ca.pem"), "-----BEGIN CERTIFICATE-----\nMII").unwrap();
        advance(Duration::from_secs(300)).await;
        for _ in 0..3 {
            assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
            // The old client connects again.
            relay.event.send_replace(Event::Close);
            let _ = clock.run(subject.ask()).await;
        }
        files.replace("ca.pem", "stranger.pem");
        relay.present(presenting("stranger", None));
        let _ = clock.run(subject.ask()).await;
        assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
        let warnings = log.count("cannot create a new client");
        assert_eq!(warnings, 1, "{protocol}: {:?}", log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_certificate_of_the_client_is_presented_without_a_restart() {
    let clock = Clock::hold();
    for protocol in ["http/protobuf", "grpc"] {
        let server = Server::good(protocol).await;
        let relay = Relay::new(&server, Some(presenting("server", Some("ca")))).await;
        let files = Files::new("ca.pem", "client");
        let subject = Subject::new(protocol, relay.address, Some(&files)).unwrap();
        assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
        relay.present(presenting("server", Some("stranger")));
        // Certificate and key are two files: in between they do not match.
        files.replace("client.pem", "stranger.pem");
        clock.run(subject.ask()).await.expect_err(protocol);
        clock.run(subject.ask()).await.expect_err(protocol);
        files.replace("client.key", "stranger.key");
        assert_eq!(clock.run(subject.ask()).await, Ok(()), "{protocol}");
    }
}

/// Some servers, and load balancers in front of them, speak HTTP/2 without saying so in the handshake.
#[tokio::test]
async fn a_server_that_does_not_negotiate_a_protocol_is_reached() {
    for protocol in PROTOCOLS {
        let server = Server::good(protocol).await;
        let mut silent = ServerConfig::clone(&presenting("server", None));
        silent.alpn_protocols.clear();
        let relay = Relay::new(&server, Some(silent.into())).await;
        let files = Files::new("ca.pem", "client");
        let subject = Subject::new(protocol, relay.address, Some(&files)).unwrap();
        assert_eq!(subject.ask().await, Ok(()), "{protocol}");
    }
}
