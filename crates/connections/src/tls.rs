//! Advice for TLS errors that name no cause.

/// A part of an error of rustls or hyper, and what to do about it.
const ADVICE: [(&str, &str); 5] = [
    (
        "CaUsedAsEndEntity",
        "the certificate signed itself as a CA: create it with basicConstraints=CA:FALSE, or use one that a CA signed",
    ),
    (
        "UnsupportedSignatureAlgorithm",
        "a certificate is signed with a key that is not supported, such as P-521: use P-256, P-384, RSA or Ed25519",
    ),
    (
        "HandshakeFailure",
        "the server wants a client certificate, or shares no cipher suite or kind of key with this client: its key may be for P-521, which is not supported, use P-256, P-384, RSA or Ed25519",
    ),
    (
        "InvalidContentType",
        "that port speaks plain HTTP and not TLS: correct the port, or use http://",
    ),
    (
        "failed to parse private key",
        "use a key for P-256, P-384, RSA or Ed25519; P-521 is not supported",
    ),
];

/// Returns what to do about an error, if it is one that does not say so itself.
pub fn advice(error: &str) -> Option<&'static str> {
    let mut known = ADVICE.iter();
    let (_, advice) = known.find(|(part, _)| error.contains(part))?;
    Some(advice)
}
