use super::*;

/// The value of the label `reason`, or "accepted".
pub(crate) fn row(verdict: &Verdict) -> &'static str {
    let reason = verdict.reason();
    reason.map_or("accepted", Into::into)
}

/// Returns why a request was rejected as a whole.
#[track_caller]
pub(crate) fn rejection(verdict: Verdict) -> Rejection {
    match verdict {
        Verdict::Rejected(rejection) => rejection,
        other => panic!("not a rejection: {other:?}"),
    }
}

/// HTTP statuses, and the verdict.
const HTTP: &str = "
413 => too_large
400 402 405 406 409 410 412 415 418 422 426 431 451 => bad_record
500 => server_error
401 403 407 => unauthorized
408 => timeout
429 => rate_limited
200 204 301 308 404 421 501 505 => wrong_endpoint
502 503 504 507 599 100 425 600 999 => unavailable
";

#[test]
fn every_http_status_has_a_verdict() {
    for line in HTTP.trim().lines() {
        let (statuses, expected) = line.split_once(" => ").expect(line);
        for status in statuses.split(' ') {
            let verdict = of_http(status.parse().expect(status), "no luck", None);
            assert_eq!(row(&verdict), expected, "{status}");
        }
    }
    let verdict = of_http(400, "http: request body too large", None);
    assert_eq!(row(&verdict), "too_large");
}

/// gRPC codes and messages, and the verdict.
const GRPC: &str = "
InvalidArgument => bad_record
Internal => server_error
Internal: h2 protocol error: http2 error => connect
Internal: Exception calling application: 'id' => server_error
Unknown: Exception calling application: 'id' => server_error
Unknown: Payload Too Large => too_large
Unknown: protocol error: missing grpc-status trailer => wrong_endpoint
OutOfRange: decoded message length too large => too_large
OutOfRange => unavailable
ResourceExhausted => rate_limited
ResourceExhausted: rate limit exceeded => rate_limited
ResourceExhausted: ingestion limit exceeded => rate_limited
ResourceExhausted: ingestion rate limit (local: 15000000 bytes, global: 0 bytes) exceeded while adding 137994 bytes => rate_limited
ResourceExhausted: Quota exceeded: 1000000 bytes => rate_limited
ResourceExhausted: received message larger than max (5 vs. 4) => too_large
ResourceExhausted: message exceeds maximum size 4: 5 => too_large
Cancelled => timeout
DeadlineExceeded => timeout
Unavailable => unavailable
Aborted => unavailable
DataLoss => unavailable
FailedPrecondition => bad_record
AlreadyExists => bad_record
Unauthenticated => unauthorized
PermissionDenied => unauthorized
Unimplemented => wrong_endpoint
NotFound => wrong_endpoint
# Proxies that answer without a gRPC status.
Unknown: grpc-status header missing, mapped from HTTP status code 413 => too_large
Internal: grpc-status header missing, mapped from HTTP status code 413 => too_large
Internal: protocol error: while receiving response with status: 401 Unauthorized => unauthorized
";

#[test]
fn every_grpc_status_has_a_verdict() {
    for line in GRPC.trim().lines().filter(|line| !line.starts_with('#')) {
        let (answer, expected) = line.split_once(" => ").expect(line);
        let (name, words) = answer.split_once(": ").unwrap_or((answer, ""));
        let mut codes = (0..17).map(Code::from);
        let code = codes.find(|code| format!("{code:?}") == name).expect(line);
        assert_eq!(row(&of_grpc(code, words, None)), expected, "{line}");
    }
}

#[test]
fn a_status_of_a_proxy_or_a_timeout_says_so() {
    let message = |words| rejection(of_grpc(Code::DeadlineExceeded, words, None)).message;
    assert_eq!(message(""), "no answer in time: DeadlineExceeded");
    let proxy = message("mapped from HTTP status code 503");
    assert!(proxy.starts_with("HTTP 503"), "{proxy}");
}

#[test]
fn a_success_may_be_partial() {
    for (rejected, said, expected) in [
        (0, "", Verdict::Accepted),
        (
            0,
            "too old, token t0p",
            Verdict::Warned {
                message: "too old, token".to_owned(),
            },
        ),
        (
            2,
            "entry too far behind, token t0p",
            Verdict::PartlyRejected {
                rejected: 2,
                message: "too far behind, token".to_owned(),
            },
        ),
    ] {
        assert_eq!(Verdict::of_success(rejected, said), expected);
    }
}

/// Nothing of what a peer says is shown but phrases that are known before.
#[test]
fn a_message_is_the_status_and_known_phrases() {
    let said = "no org id; you sent Bearer s3cret\u{1b}, ada@example.com";
    let refused = std::io::Error::other("Connection refused by s3cret");
    for (verdict, expected) in [
        (of_http(401, said, None), "HTTP 401: no org id"),
        (of_http(503, "s3cret", None), "HTTP 503"),
        (
            of_grpc(Code::Unauthenticated, said, None),
            "Unauthenticated: no org id",
        ),
        (
            disconnected(&refused, false, "gRPC"),
            "connection failed: connection refused",
        ),
    ] {
        assert_eq!(rejection(verdict).message, expected);
    }
    let long = rejection(of_http(503, "", Some(Duration::MAX)));
    assert_eq!(long.retry_after, Some(MAX_DELAY));
}

/// The caller isolates a record only if one may be the cause, and advises a check of the settings only if those may be.
#[test]
fn a_reason_says_where_to_look() {
    for (reason, records, settings, connection) in [
        (Reason::Connect, false, false, true),
        (Reason::Timeout, false, false, true),
        (Reason::Unavailable, false, false, false),
        (Reason::RateLimited, false, false, false),
        (Reason::Unauthorized, false, true, true),
        (Reason::WrongEndpoint, false, true, true),
        (Reason::TooLarge, true, false, false),
        (Reason::BadRecord, true, false, false),
        (Reason::ServerError, true, false, false),
    ] {
        assert_eq!(reason.is_about_records(), records, "{reason:?}");
        assert_eq!(reason.is_about_settings(), settings, "{reason:?}");
        assert_eq!(reason.is_about_connection(), connection, "{reason:?}");
    }
}
