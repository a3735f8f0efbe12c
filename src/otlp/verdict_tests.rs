use super::*;

/// The value of the label `reason`, or "acknowledged".
pub(crate) fn row(verdict: &Verdict) -> &'static str {
    let reason = verdict.reason();
    reason.map_or("acknowledged", FailureReason::as_str)
}

/// After any other refusal the records wait.
#[test]
fn a_search_follows_a_refusal_of_records_and_an_internal_error() {
    let about_records = FailureReason::ALL.into_iter();
    let about_records = about_records.filter(|reason| reason.is_about_records());
    let mut names: Vec<_> = about_records.map(FailureReason::as_str).collect();
    names.sort_unstable();
    let expected = ["bad_record", "partly_rejected", "server_error", "too_large"];
    assert_eq!(names, expected);
}

#[test]
fn every_http_status_has_a_verdict() {
    for (statuses, expected) in [
        (&[413][..], "too_large"),
        (&[400, 422], "bad_record"),
        (&[500], "server_error"),
        (&[401, 403, 407], "unauthorized"),
        (&[301, 302, 307, 308, 404, 405, 410], "not_found"),
        (&[408], "timeout"),
        (&[429], "rate_limited"),
        (&[200, 204, 415, 421, 426, 501, 505], "not_otlp"),
        (&[502, 503, 504, 507, 599], "unavailable"),
        (&[100, 402, 418, 451, 600, 999], "other"),
    ] {
        for status in statuses {
            assert_eq!(
                row(&of_http(*status, "no luck", None)),
                expected,
                "{status}"
            );
        }
    }
    let verdict = of_http(400, "http: request body too large", None);
    assert_eq!(row(&verdict), "too_large");
}

#[test]
fn every_grpc_status_has_a_verdict() {
    use Code as C;
    for (codes, words, expected) in [
        (&[C::InvalidArgument][..], "", "bad_record"),
        (&[C::Internal], "", "server_error"),
        (&[C::Internal], "h2 protocol error: http2 error", "connect"),
        (&[C::ResourceExhausted], "", "rate_limited"),
        (
            &[C::ResourceExhausted],
            "rate limit exceeded",
            "rate_limited",
        ),
        (
            &[C::ResourceExhausted],
            "ingestion limit exceeded",
            "rate_limited",
        ),
        (
            &[C::ResourceExhausted],
            "ingestion rate limit (local: 15000000 bytes, global: 0 bytes) exceeded while adding 137994 bytes",
            "rate_limited",
        ),
        (
            &[C::ResourceExhausted],
            "Quota exceeded: 1000000 bytes",
            "rate_limited",
        ),
        (
            &[C::ResourceExhausted],
            "received message larger than max (5 vs. 4)",
            "too_large",
        ),
        (
            &[C::ResourceExhausted],
            "message exceeds maximum size 4: 5",
            "too_large",
        ),
        (
            &[C::OutOfRange],
            "decoded message length too large",
            "too_large",
        ),
        (&[C::Unknown], "Payload Too Large", "too_large"),
        (&[C::Cancelled, C::DeadlineExceeded], "", "timeout"),
        (
            &[C::Unavailable, C::Aborted, C::DataLoss],
            "",
            "unavailable",
        ),
        (
            &[C::Unauthenticated, C::PermissionDenied],
            "",
            "unauthorized",
        ),
        (&[C::Unimplemented, C::NotFound], "", "not_found"),
        (
            &[C::Unknown],
            "protocol error: missing grpc-status trailer",
            "not_otlp",
        ),
        // Proxies that answer without a gRPC status.
        (
            &[C::Unknown, C::Internal],
            "grpc-status header missing, mapped from HTTP status code 413",
            "too_large",
        ),
        (
            &[C::Internal],
            "protocol error: while receiving response with status: 401 Unauthorized",
            "unauthorized",
        ),
        (
            &[C::OutOfRange, C::FailedPrecondition, C::AlreadyExists],
            "",
            "other",
        ),
        (
            &[C::Unknown, C::Internal],
            "Exception calling application: 'id'",
            "server_error",
        ),
    ] {
        for code in codes {
            assert_eq!(
                row(&of_grpc(*code, words, None)),
                expected,
                "{code:?} {words}"
            );
        }
    }
}

#[test]
fn a_status_of_a_proxy_or_a_timeout_says_so() {
    let message = |words| match of_grpc(Code::DeadlineExceeded, words, None) {
        Verdict::Refused(refusal) => refusal.message,
        other => panic!("{other:?}"),
    };
    assert_eq!(message(""), "no answer in time: DeadlineExceeded");
    let proxy = message("mapped from HTTP status code 503");
    assert!(proxy.starts_with("HTTP 503"), "{proxy}");
}

#[test]
fn a_success_may_be_partial() {
    for (rejected, message, expected) in [
        (0, "", Verdict::Acknowledged { warning: None }),
        (-1, "", Verdict::Acknowledged { warning: None }),
        (
            0,
            "old",
            Verdict::Acknowledged {
                warning: Some("old".to_owned()),
            },
        ),
        (
            2,
            "bad",
            Verdict::PartlyRejected {
                rejected: 2,
                message: "bad".to_owned(),
            },
        ),
    ] {
        assert_eq!(Verdict::of_success(rejected, message.to_owned()), expected);
    }
}

#[test]
fn the_summary_has_nothing_that_the_collector_said() {
    for (message, expected) in [
        ("HTTP 503: secret", "HTTP 503"),
        ("Unavailable: secret: more", "Unavailable"),
        ("connection failed: secret; does it", "connection failed"),
        ("no answer within 10s", "no answer within 10s"),
    ] {
        let refusal = Refusal::new(FailureReason::Other, message);
        assert_eq!(refusal.summary(), expected);
    }
    let verdict = of_http(503, "", Some(Duration::MAX));
    let is_bounded = |refusal: &Refusal| refusal.retry_after == Some(MAX_DELAY);
    assert!(matches!(verdict, Verdict::Refused(refusal) if is_bounded(&refusal)));
}

#[test]
fn the_label_values_are_part_of_the_interface() {
    let values = FailureReason::ALL.map(FailureReason::as_str).join(" ");
    assert_eq!(
        values,
        "connect timeout unauthorized not_found rate_limited too_large bad_record server_error \
         partly_rejected unavailable not_otlp other"
    );
}
