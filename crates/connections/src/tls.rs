//! The authorities that a peer's certificate may be from, and advice for TLS errors that name no cause.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// A part of an error of rustls or hyper, and what to do about it.
const ADVICE: [(&str, &str); 5] = [
    (
        "CaUsedAsEndEntity",
        "the self-signed certificate has CA:TRUE: create it with basicConstraints=CA:FALSE, or use one that a CA signed",
    ),
    (
        "UnsupportedSignatureAlgorithm",
        "a certificate is signed with a key that is not supported, such as P-521: use P-256, P-384, RSA or Ed25519",
    ),
    (
        "HandshakeFailure",
        "the server requires a client certificate, or supports no cipher suite or type of key of this client: its key may be P-521, which is not supported; use P-256, P-384, RSA or Ed25519",
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

/// Reads a bundle of root certificates in PEM. Returns them, and a warning for each that was skipped because it cannot be
/// read.
///
/// # Errors
/// Returns an error if none can be read.
pub fn authorities(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, Vec<String>), String> {
    let (mut certificates, mut skipped) = (Vec::new(), Vec::new());
    let sections = CertificateDer::pem_slice_iter(pem).enumerate();
    for (index, section) in sections {
        let read = section.map_err(|error| error.to_string());
        let usable = read.and_then(|certificate: CertificateDer<'static>| {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|error| error.to_string())?;
            Ok(certificate)
        });
        match usable {
            Ok(certificate) => certificates.push(certificate),
            Err(error) => {
                skipped.push(format!("certificate {} cannot be read: {error}", index + 1))
            }
        }
    }
    match (certificates.is_empty(), skipped.first()) {
        (false, _) => Ok((certificates, skipped)),
        (true, Some(error)) => Err(error.clone()),
        (true, None) => Err("it contains no certificate in PEM format".to_owned()),
    }
}

/// Returns what to do about an error, if it is one that does not say so itself.
pub fn advice(error: &str) -> Option<&'static str> {
    let mut known = ADVICE.iter();
    let (_, advice) = known.find(|(part, _)| error.contains(part))?;
    Some(advice)
}
