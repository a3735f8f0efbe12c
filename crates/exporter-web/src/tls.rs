//! `tls_server_config`: the server's certificate, whether clients need one, and the lowest version.
//!
//! rustls has only cipher suites and curves without known weaknesses, so they are not configurable.

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::config::Files;

/// The certificates in a file, as an error calls them.
const CERTIFICATES: &str = "a certificate in PEM form (-----BEGIN CERTIFICATE-----)";

/// `tls_server_config`, as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsSection {
    cert_file: String,
    key_file: String,
    client_ca_file: String,
    client_auth_type: ClientAuth,
    min_version: MinVersion,
}

/// `client_auth_type`, by its names in Go.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
enum ClientAuth {
    #[default]
    #[serde(rename = "NoClientCert")]
    Off,
    #[serde(rename = "VerifyClientCertIfGiven")]
    IfGiven,
    #[serde(rename = "RequireAndVerifyClientCert")]
    Required,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
enum MinVersion {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

/// TLS as the file asks for it.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) server: Arc<ServerConfig>,
    /// Whether certificates of clients are verified, and whether they are required.
    pub(crate) protections: [bool; 2],
    /// When the first certificate of the chain expires.
    pub(crate) not_after: Option<SystemTime>,
}

/// Returns when the first certificate of a chain expires; `None` if none can be parsed.
pub fn not_after<'a>(
    chain: impl IntoIterator<Item = &'a CertificateDer<'a>>,
) -> Option<SystemTime> {
    let ends = chain.into_iter().filter_map(|certificate| {
        let certificate = Certificate::from_der(certificate).ok()?;
        Some(
            certificate
                .tbs_certificate
                .validity
                .not_after
                .to_system_time(),
        )
    });
    ends.min()
}

fn error(field: &str, message: impl Display) -> String {
    format!("tls_server_config.{field}: {message}")
}

// === impl Tls ===

impl Tls {
    /// Builds the configuration; `None` if the section is empty.
    pub(crate) fn new(
        section: &TlsSection,
        http2: bool,
        files: &mut Files,
    ) -> Result<Option<Self>, String> {
        let names = [
            &section.cert_file,
            &section.key_file,
            &section.client_ca_file,
        ];
        if names.iter().all(|name| name.is_empty()) && section.client_auth_type == ClientAuth::Off {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let versions = match section.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|failed| error("min_version", failed))?;
        let builder = match client_verifier(section, files, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let chain = certificates("cert_file", &section.cert_file, files)?;
        let key = read("key_file", &section.key_file, files)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
            let message = "it contains no private key in PEM form (-----BEGIN PRIVATE KEY-----); an encrypted key cannot be used";
            error("key_file", message)
        })?;
        let not_after = not_after(&chain);
        let mut server = builder.with_single_cert(chain, key).map_err(|failed| {
            let message = format!(
                "{failed}; key_file must be the key of cert_file, and the certificate X.509 version 3"
            );
            error("key_file", message)
        })?;
        if http2 {
            server.alpn_protocols.push(b"h2".to_vec());
        }
        server.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Some(Self {
            server: Arc::new(server),
            protections: [
                section.client_auth_type != ClientAuth::Off,
                section.client_auth_type == ClientAuth::Required,
            ],
            not_after,
        }))
    }
}

/// Returns what verifies that a certificate is signed by the authority, if clients may have one.
fn client_verifier(
    section: &TlsSection,
    files: &mut Files,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    const FIELD: &str = "client_ca_file";
    let name = &section.client_ca_file;
    match (section.client_auth_type, name.is_empty()) {
        (ClientAuth::Off, true) => return Ok(None),
        (ClientAuth::Off, false) => {
            let message = "it has no effect without client_auth_type; write client_auth_type: RequireAndVerifyClientCert, or remove it";
            return Err(error(FIELD, message));
        }
        // The authorities of the system would let in everybody who has a certificate for a web site.
        (_, true) => {
            let message = "it is missing; client_auth_type needs the authority of the clients";
            return Err(error(FIELD, message));
        }
        _ => {}
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates(FIELD, name, files)? {
        let added = roots.add(certificate);
        added.map_err(|failed| error(FIELD, failed))?;
    }
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    if section.client_auth_type == ClientAuth::IfGiven {
        verifier = verifier.allow_unauthenticated();
    }
    let verifier = verifier.build().map_err(|failed| error(FIELD, failed))?;
    Ok(Some(verifier))
}

fn certificates(
    field: &str,
    name: &str,
    files: &mut Files,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(field, name, files)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.ok().filter(|all| !all.is_empty());
    all.ok_or_else(|| error(field, format!("it does not contain {CERTIFICATES}")))
}

fn read(field: &str, name: &str, files: &mut Files) -> Result<Vec<u8>, String> {
    if name.is_empty() {
        return Err(error(
            field,
            "it is missing; TLS needs cert_file and key_file",
        ));
    }
    files.read(name).map_err(|failed| {
        let message = "paths are relative to the configuration file";
        error(field, format!("cannot read {name:?}: {failed}; {message}"))
    })
}
