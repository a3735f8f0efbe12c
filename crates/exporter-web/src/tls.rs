//! `tls_server_config`: the server's certificate, whether clients need one, and the lowest version.
//!
//! rustls has only cipher suites and curves without known weaknesses, so they are not configurable.

use std::fmt::Display;
use std::io;
use std::ops::Range;
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

/// `tls_server_config`, as it is written.
#[derive(Deserialize)]
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

/// `client_auth_type`, by its names in Go, the weakest first.
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

#[derive(Clone, Copy, Default, Deserialize)]
enum MinVersion {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

/// TLS as the file asks for it.
pub(crate) struct Tls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client_auth: ClientAuth,
    /// See [`validity`].
    pub(crate) validity: Option<Range<SystemTime>>,
}

/// Returns from when until when the certificate of a chain that expires first is valid; `None` if none can be parsed.
pub fn validity<'a>(
    chain: impl IntoIterator<Item = &'a CertificateDer<'a>>,
) -> Option<Range<SystemTime>> {
    let all = chain.into_iter().filter_map(|certificate| {
        let certificate = Certificate::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate.validity;
        let [start, end] = [validity.not_before, validity.not_after]
            .map(|time| SystemTime::UNIX_EPOCH + time.to_unix_duration());
        Some(start..end)
    });
    all.min_by_key(|validity| validity.end)
}

fn error(field: &str, message: impl Display) -> String {
    format!("tls_server_config.{field}: {message}")
}

fn certificates(field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(error(
            field,
            "it contains no certificate in PEM format (-----BEGIN CERTIFICATE-----)",
        )),
    }
}

/// Returns what verifies that the certificate of a client is signed by an authority.
fn client_verifier(
    policy: ClientAuth,
    authority: &[u8],
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    const FIELD: &str = "client_ca_file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(FIELD, authority)? {
        roots
            .add(certificate)
            .map_err(|failed| error(FIELD, failed))?;
    }
    let mut verifier = WebPkiClientVerifier::builder(roots.into());
    if policy == ClientAuth::IfGiven {
        verifier = verifier.allow_unauthenticated();
    }
    verifier.build().map_err(|failed| error(FIELD, failed))
}

// === impl TlsSection ===

impl TlsSection {
    /// Reads the files with `read`, which finds them beside the configuration file.
    pub(crate) fn load(
        &self,
        mut read: impl FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<Tls, String> {
        let mut pem = |field, name: &str| {
            read(name).map_err(|failed| {
                error(
                    field,
                    format!("cannot read {name:?}: {failed}; paths are relative to the configuration file"),
                )
            })
        };
        let chain = certificates("cert_file", &pem("cert_file", &self.cert_file)?)?;
        let key = PrivateKeyDer::from_pem_slice(&pem("key_file", &self.key_file)?).map_err(|_| {
            error("key_file", "it contains no private key in PEM format (-----BEGIN PRIVATE KEY-----); an encrypted key cannot be used")
        })?;
        let authority = self.client_ca_file.as_ref();
        let authority = authority.map(|name| pem("client_ca_file", name));
        let authority = authority.transpose()?;
        let versions = match self.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_protocol_versions(versions);
        let builder = match (self.client_auth_type, authority) {
            (ClientAuth::Off, None) => builder.with_no_client_auth(),
            (policy, Some(authority)) if policy != ClientAuth::Off => {
                builder.with_client_cert_verifier(client_verifier(policy, &authority)?)
            }
            // Never the authorities of the system, who sign a certificate for everybody.
            _ => {
                return Err(error(
                    "client_ca_file",
                    "it must be given together with client_auth_type: RequireAndVerifyClientCert or VerifyClientCertIfGiven, and only then",
                ));
            }
        };
        let validity = validity(&chain);
        let mut server = builder.with_single_cert(chain, key).map_err(|failed| {
            error(
                "key_file",
                format!(
                    "{failed}; it must be the key of cert_file, for P-256, P-384, RSA or Ed25519 (P-521 is not supported), and the certificate X.509 version 3"
                ),
            )
        })?;
        server.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Tls {
            server: server.into(),
            client_auth: self.client_auth_type,
            validity,
        })
    }
}
