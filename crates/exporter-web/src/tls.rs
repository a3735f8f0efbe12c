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

/// `tls_server_config`, as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsSection {
    cert_file: String,
    key_file: String,
    client_ca_file: String,
    client_auth_type: ClientAuth,
    min_version: String,
}

/// `client_auth_type`, by its names in Go. What protects more is greater.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd)]
pub(crate) enum ClientAuth {
    #[default]
    #[serde(rename = "NoClientCert")]
    Off,
    #[serde(rename = "VerifyClientCertIfGiven")]
    IfGiven,
    #[serde(rename = "RequireAndVerifyClientCert")]
    Required,
}

/// TLS as the file asks for it.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client_auth: ClientAuth,
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

/// Returns what to do about a failed handshake.
pub(crate) fn advice(error: &str) -> &'static str {
    if error.contains("CaUsedAsEndEntity") {
        "the client's certificate signed itself as a CA: create it with basicConstraints=CA:FALSE, or use one that a CA signed"
    } else if error.contains("InvalidContentType") {
        "the client speaks plain HTTP: it has to use https://"
    } else {
        "check the client's TLS settings"
    }
}

fn error(field: &str, message: impl Display) -> String {
    format!("tls_server_config.{field}: {message}")
}

// === impl Tls ===

impl Tls {
    pub(crate) fn new(section: &TlsSection, files: &mut Files) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let versions = match section.min_version.as_str() {
            "" | "TLS12" => rustls::ALL_VERSIONS,
            "TLS13" => &[&rustls::version::TLS13],
            other => {
                return Err(error(
                    "min_version",
                    format!("{other:?} is not supported; write TLS12 or TLS13"),
                ));
            }
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
            error("key_file", "it contains no private key in PEM form (-----BEGIN PRIVATE KEY-----); an encrypted key cannot be used")
        })?;
        let not_after = not_after(&chain);
        let mut server = builder.with_single_cert(chain, key).map_err(|failed| {
            error(
                "key_file",
                format!(
                    "{failed}; it must be the key of cert_file, for P-256, P-384, RSA or Ed25519 (P-521 is not supported), and the certificate X.509 version 3"
                ),
            )
        })?;
        server.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Self {
            server: Arc::new(server),
            client_auth: section.client_auth_type,
            not_after,
        })
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
    if section.client_auth_type == ClientAuth::Off {
        return match name.is_empty() {
            true => Ok(None),
            false => Err(error(
                FIELD,
                "it has no effect without client_auth_type; write client_auth_type: RequireAndVerifyClientCert, or remove it",
            )),
        };
    }
    // Never the authorities of the system, who sign a certificate for everybody.
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
    all.ok_or_else(|| {
        error(
            field,
            "it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
        )
    })
}

fn read(field: &str, name: &str, files: &mut Files) -> Result<Vec<u8>, String> {
    if name.is_empty() {
        return Err(error(
            field,
            "it is missing; TLS needs cert_file and key_file, and client_auth_type the authority of the clients",
        ));
    }
    files.read(name).map_err(|failed| {
        error(
            field,
            format!("cannot read {name:?}: {failed}; paths are relative to the configuration file"),
        )
    })
}
