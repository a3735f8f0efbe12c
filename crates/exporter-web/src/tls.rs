//! `tls_server_config`: the server's certificate, whether clients need one, and the lowest version.
//!
//! rustls has only cipher suites and curves without known weaknesses, so they are not configurable.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::read_file;

/// `tls_server_config`, as it is written.
#[derive(Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSection {
    cert_file: String,
    key_file: String,
    client_ca_file: Option<String>,
    #[serde(default)]
    client_auth_type: ClientAuth,
    #[serde(default)]
    min_version: MinVersion,
}

/// `client_auth_type`, by its names in Go.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(crate) enum ClientAuth {
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

/// The files that a section names.
#[derive(Default, PartialEq)]
pub(crate) struct PemFiles {
    certificates: Vec<u8>,
    key: Vec<u8>,
    client_authority: Vec<u8>,
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
        let validity = certificate.tbs_certificate.validity;
        Some(validity.not_after.to_system_time())
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

// === impl TlsSection ===

impl TlsSection {
    /// Reads the files; their paths are relative to the directory of the configuration file.
    pub(crate) fn read(&self, directory: &Path) -> Result<PemFiles, String> {
        let read = |field, name: &str| {
            let content = read_file(&directory.join(name));
            content.map_err(|failed| {
                error(
                    field,
                    format!("cannot read {name:?}: {failed}; paths are relative to the configuration file"),
                )
            })
        };
        let authority = self.client_ca_file.as_deref();
        let authority = authority
            .map(|name| read("client_ca_file", name))
            .transpose()?;
        Ok(PemFiles {
            certificates: read("cert_file", &self.cert_file)?,
            key: read("key_file", &self.key_file)?,
            client_authority: authority.unwrap_or_default(),
        })
    }
}

// === impl Tls ===

impl Tls {
    pub(crate) fn new(section: &TlsSection, files: &PemFiles) -> Result<Self, String> {
        let versions = match section.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let chain = certificates("cert_file", &files.certificates)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|_| {
            error("key_file", "it contains no private key in PEM form (-----BEGIN PRIVATE KEY-----); an encrypted key cannot be used")
        })?;
        let not_after = not_after(&chain);
        let server = ServerConfig::builder_with_protocol_versions(versions)
            .with_client_cert_verifier(client_verifier(section, files)?)
            .with_single_cert(chain, key);
        let mut server = server.map_err(|failed| {
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
    files: &PemFiles,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    const FIELD: &str = "client_ca_file";
    match (section.client_auth_type, &section.client_ca_file) {
        (ClientAuth::Off, None) => return Ok(WebPkiClientVerifier::no_client_auth()),
        (ClientAuth::Off, Some(_)) => {
            return Err(error(
                FIELD,
                "it has no effect without client_auth_type; write client_auth_type: RequireAndVerifyClientCert, or remove it",
            ));
        }
        // Never the authorities of the system, who sign a certificate for everybody.
        (_, None) => {
            return Err(error(
                FIELD,
                "it is missing; client_auth_type needs the authority of the clients",
            ));
        }
        (_, Some(_)) => {}
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates(FIELD, &files.client_authority)? {
        roots
            .add(certificate)
            .map_err(|failed| error(FIELD, failed))?;
    }
    let mut verifier = WebPkiClientVerifier::builder(roots.into());
    if section.client_auth_type == ClientAuth::IfGiven {
        verifier = verifier.allow_unauthenticated();
    }
    verifier.build().map_err(|failed| error(FIELD, failed))
}

fn certificates(field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.ok().filter(|all| !all.is_empty());
    all.ok_or_else(|| {
        error(
            field,
            "it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
        )
    })
}
