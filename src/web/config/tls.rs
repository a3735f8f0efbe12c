//! `tls_server_config`, made into what rustls takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use secrecy::{ExposeSecret as _, SecretString};

use super::client::{ClientAuth, Verifier};
use super::{ConfigError, file, names};
use crate::metrics::certificates::not_after;

/// TLS as a file asks for it.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client_auth: ClientAuth,
    /// What the file asks for and cannot have; said in the log.
    pub(super) remarks: Vec<String>,
    /// When the certificate, or another of its chain, ends.
    pub(super) not_after: Option<Timestamp>,
    /// Names alone are compared with `client_allowed_sans`.
    pub(super) names_restricted: bool,
}

/// Where a PEM text comes from.
struct Source {
    field: &'static str,
    text: SecretString,
}

/// Makes TLS out of the fields; `None` where none of them is given. `files` collects what was read.
pub(super) fn tls(
    given: &file::Tls,
    http2: bool,
    directory: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<Option<Tls>, ConfigError> {
    if !given.is_on() {
        return Ok(None);
    }
    let mut remarks = Vec::new();
    let cert = source(
        ["tls_server_config.cert_file", "tls_server_config.cert"],
        &given.cert_file,
        &given.cert,
        directory,
        files,
    )?;
    let key = given.key.0.expose_secret();
    let key = source(
        ["tls_server_config.key_file", "tls_server_config.key"],
        &given.key_file,
        key,
        directory,
        files,
    )?;
    let cert = cert.ok_or_else(|| {
        ConfigError::new("tls_server_config", "missing one of cert or cert_file; give the server's certificate, in PEM form, as cert_file")
    })?;
    let key = key.ok_or_else(|| {
        ConfigError::new(
            "tls_server_config",
            "missing one of key or key_file; give the certificate's private key, in PEM form, as key_file",
        )
    })?;

    let versions = names::versions(given.min_version.as_deref(), given.max_version.as_deref())?;
    let mut provider = ring::default_provider();
    if !given.cipher_suites.is_empty() {
        let chosen = names::ciphers(&given.cipher_suites)?;
        remark(&mut remarks, "cipher_suites", &chosen.missing);
        let with_tls12 = versions.contains(&&rustls::version::TLS12);
        if http2 && with_tls12 && !names::can_http2(&chosen.chosen) {
            return Err(ConfigError::new(
                "tls_server_config.cipher_suites",
                "HTTP/2 needs TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; add one of them, or write http2: false in http_server_config",
            ));
        }
        provider.cipher_suites = chosen.chosen;
    }
    if !given.curve_preferences.is_empty() {
        let chosen = names::curves(&given.curve_preferences)?;
        remark(&mut remarks, "curve_preferences", &chosen.missing);
        provider.kx_groups = chosen.chosen;
    }
    let provider = Arc::new(provider);

    let client_auth = ClientAuth::parse(&given.client_auth_type)?;
    let verifier = client_verifier(given, client_auth, directory, files, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| {
            ConfigError::new(
                "tls_server_config.cipher_suites",
                format!("{error}; no cipher suite fits min_version and max_version"),
            )
        })?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(verifier)),
        None => builder.with_no_client_auth(),
    };
    let chain = certificates(&cert)?;
    let not_after = not_after(&chain);
    let mut server = builder
        .with_single_cert(chain, private_key(&key)?)
        .map_err(|error| {
            ConfigError::new(
                key.field,
                format!(
                    "{error}; it must be the private key of the certificate in {}",
                    cert.field
                ),
            )
        })?;
    // Without a list there is no preference of the server's to go by.
    server.ignore_client_order =
        given.prefer_server_cipher_suites.unwrap_or(true) && !given.cipher_suites.is_empty();
    server.alpn_protocols = if http2 {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    } else {
        vec![b"http/1.1".to_vec()]
    };
    let names_restricted = given.client_allowed_sans.is_some();
    Ok(Some(Tls {
        server: Arc::new(server),
        client_auth,
        remarks,
        not_after,
        names_restricted,
    }))
}

fn remark(remarks: &mut Vec<String>, field: &str, missing: &[String]) {
    if !missing.is_empty() {
        remarks.push(format!(
            "tls_server_config.{field}: {} not to be had here; the others are used",
            missing.join(", ")
        ));
    }
}

fn client_verifier(
    given: &file::Tls,
    auth: ClientAuth,
    directory: &Path,
    files: &mut Vec<PathBuf>,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Option<Verifier>, ConfigError> {
    let fields = [
        "tls_server_config.client_ca_file",
        "tls_server_config.client_ca",
    ];
    let authority = source(
        fields,
        &given.client_ca_file,
        &given.client_ca,
        directory,
        files,
    )?;
    if let (Some(authority), ClientAuth::None) = (&authority, auth) {
        return Err(ConfigError::new(
            authority.field,
            "client CA's have been configured without a Client Auth Policy; write client_auth_type: RequireAndVerifyClientCert",
        ));
    }
    if given.client_allowed_sans.is_some() && !auth.is_mandatory() {
        return Err(ConfigError::new(
            "tls_server_config.client_allowed_sans",
            "it requires client_auth_type to be one of RequireAnyClientCert or RequireAndVerifyClientCert",
        ));
    }
    if auth == ClientAuth::None {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    match &authority {
        Some(authority) => {
            for certificate in certificates(authority)? {
                roots.add(certificate).map_err(|error| {
                    ConfigError::new(
                        authority.field,
                        format!("a certificate is of no use as an authority: {error}"),
                    )
                })?;
            }
        }
        // As in Go: without an authority of one's own, those of the system.
        None if auth.verifies() => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    Verifier::new(auth, roots, given.client_allowed_sans.clone(), provider).map(Some)
}

/// The text of a file, or the text itself. A file wins, as in the toolkit.
fn source(
    [file_field, inline_field]: [&'static str; 2],
    path: &str,
    inline: &str,
    directory: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<Option<Source>, ConfigError> {
    if path.is_empty() {
        return Ok((!inline.is_empty()).then(|| Source {
            field: inline_field,
            text: inline.to_owned().into(),
        }));
    }
    let path = directory.join(path);
    files.push(path.clone());
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(Source {
            field: file_field,
            text: text.into(),
        })),
        Err(error) => {
            let name = path.display().to_string();
            Err(ConfigError::new(
                file_field,
                format!(
                    "{name:?} cannot be read: {error}; paths are relative to the configuration file"
                ),
            ))
        }
    }
}

fn certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(source.text.expose_secret().as_bytes()).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(ConfigError::new(
            source.field,
            "it holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
        )),
        Err(error) => Err(ConfigError::new(
            source.field,
            format!("it is not in PEM form: {error}"),
        )),
    }
}

fn private_key(source: &Source) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(source.text.expose_secret().as_bytes()).map_err(|_| {
        ConfigError::new(source.field, "it holds no private key in PEM form (-----BEGIN PRIVATE KEY-----); an encrypted key cannot be used")
    })
}
