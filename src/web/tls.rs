//! `tls_server_config`: the server's certificate, the policy for client certificates, and versions.
//!
//! rustls has only cipher suites and curves without known weaknesses, so they are not configurable.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::config::Files;
use crate::metrics::certificates::not_after;

/// `tls_server_config`, as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsFields {
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    client_ca_file: Option<String>,
    client_auth_type: Option<ClientAuth>,
    client_allowed_sans: Option<Vec<String>>,
    min_version: Option<Version>,
    max_version: Option<Version>,
    cipher_suites: Option<IgnoredAny>,
    prefer_server_cipher_suites: Option<IgnoredAny>,
    curve_preferences: Option<IgnoredAny>,
}

/// `client_auth_type`, as Go's `tls.ClientAuthType`.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
enum ClientAuth {
    #[default]
    NoClientCert,
    RequestClientCert,
    #[serde(alias = "RequireClientCert")]
    RequireAnyClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Deserialize)]
enum Version {
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

/// TLS as the file asks for it.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) server: Arc<ServerConfig>,
    /// Whether a certificate of the client is required, must be signed by the authority, and must
    /// contain an allowed name.
    pub(super) protections: [bool; 3],
    /// Whether the file contains cipher suites or curves, which are not configurable.
    pub(super) ignored: bool,
    /// When the first certificate of the chain expires.
    pub(super) not_after: Option<Timestamp>,
}

/// A text in PEM form, and the field that it comes from.
struct Pem {
    field: String,
    text: String,
}

/// Verifies certificates of clients: Go's policies, and the allowed names.
#[derive(Debug)]
struct ClientVerifier {
    required: bool,
    /// `None` if any certificate is accepted.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// `client_allowed_sans`.
    names: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn error(field: &str, message: impl std::fmt::Display) -> String {
    format!("tls_server_config.{field}: {message}")
}

// === impl Tls ===

impl Tls {
    /// Builds the configuration; `None` if the section is empty.
    pub(super) fn new(
        fields: TlsFields,
        http2: bool,
        files: &mut Files,
    ) -> Result<Option<Self>, String> {
        let cert = Pem::read(files, "cert", fields.cert_file, fields.cert)?;
        let key = Pem::read(files, "key", fields.key_file, fields.key)?;
        let authority = Pem::read(files, "client_ca", fields.client_ca_file, fields.client_ca)?;
        let policy = fields.client_auth_type.unwrap_or_default();
        let is_empty = cert.is_none() && key.is_none() && authority.is_none();
        if is_empty && policy == ClientAuth::NoClientCert {
            return Ok(None);
        }
        let required = |pem: Option<Pem>, field| {
            let message = format!("missing {field} or {field}_file; give it as PEM");
            pem.ok_or_else(|| error(field, message))
        };
        let (cert, key) = (required(cert, "cert")?, required(key, "key")?);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions(fields.min_version, fields.max_version)?)
            .map_err(|failed| error("min_version", failed))?;
        let names = fields.client_allowed_sans;
        let verifier = ClientVerifier::new(policy, authority, names, &provider)?;
        let protections = verifier.protections();
        let builder = match policy {
            ClientAuth::NoClientCert => builder.with_no_client_auth(),
            _ => builder.with_client_cert_verifier(Arc::new(verifier)),
        };
        let chain = cert.certificates()?;
        let not_after = not_after(&chain);
        let certified = certified_key(chain, &cert, &key, &provider)?;
        let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        if http2 {
            server.alpn_protocols.push(b"h2".to_vec());
        }
        server.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(Some(Self {
            server: Arc::new(server),
            protections,
            not_after,
            ignored: fields.cipher_suites.is_some()
                || fields.prefer_server_cipher_suites.is_some()
                || fields.curve_preferences.is_some(),
        }))
    }
}

fn versions(
    min: Option<Version>,
    max: Option<Version>,
) -> Result<&'static [&'static SupportedProtocolVersion], String> {
    static TLS12: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
    static TLS13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match (min, max) {
        (Some(Version::Tls13), Some(Version::Tls12)) => Err(error(
            "min_version",
            "it is above max_version; remove one of them",
        )),
        (Some(Version::Tls13), _) => Ok(&TLS13),
        (_, Some(Version::Tls12)) => Ok(&TLS12),
        _ => Ok(rustls::ALL_VERSIONS),
    }
}

/// Pairs the certificate and the key. rustls does the same for version 3 of X.509 alone, but can
/// serve version 1 too, which is what `openssl x509 -req` creates by default.
fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    cert: &Pem,
    key: &Pem,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let der = PrivateKeyDer::from_pem_slice(key.text.as_bytes()).map_err(|_| {
        let message = "it contains no private key in PEM form (-----BEGIN PRIVATE KEY-----); an \
                       encrypted key cannot be used";
        error(&key.field, message)
    })?;
    let signing_key = provider.key_provider.load_private_key(der);
    let signing_key = signing_key.map_err(|failed| error(&key.field, failed))?;
    let parsed = x509_cert::Certificate::from_der(&chain[0])
        .and_then(|parsed| parsed.tbs_certificate.subject_public_key_info.to_der())
        .map_err(|failed| error(&cert.field, failed))?;
    let public = signing_key.public_key();
    if public.is_some_and(|public| *public != *parsed) {
        let message = "it is not the private key of the certificate in";
        return Err(error(&key.field, format!("{message} {}", cert.field)));
    }
    Ok(CertifiedKey::new(chain, signing_key))
}

// === impl Pem ===

impl Pem {
    /// Returns the content of a file, or the text in the configuration file. A file wins, as in the
    /// toolkit.
    fn read(
        files: &mut Files,
        field: &str,
        file: Option<String>,
        inline: Option<String>,
    ) -> Result<Option<Self>, String> {
        if let Some(path) = file.filter(|path| !path.is_empty()) {
            let field = format!("{field}_file");
            let text = files.read(&path).map_err(|failed| {
                let message = "paths are relative to the configuration file";
                error(&field, format!("cannot read {path:?}: {failed}; {message}"))
            })?;
            return Ok(Some(Self { field, text }));
        }
        let (field, inline) = (field.to_owned(), inline.filter(|text| !text.is_empty()));
        Ok(inline.map(|text| Self { field, text }))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        all.ok().filter(|all| !all.is_empty()).ok_or_else(|| {
            let message = "it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)";
            error(&self.field, message)
        })
    }
}

// === impl ClientVerifier ===

impl ClientVerifier {
    fn new(
        policy: ClientAuth,
        authority: Option<Pem>,
        names: Option<Vec<String>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let (required, verifies) = match policy {
            ClientAuth::NoClientCert | ClientAuth::RequestClientCert => (false, false),
            ClientAuth::RequireAnyClientCert => (true, false),
            ClientAuth::VerifyClientCertIfGiven => (false, true),
            ClientAuth::RequireAndVerifyClientCert => (true, true),
        };
        if names.is_some() && !required {
            let message =
                "it needs client_auth_type: RequireAnyClientCert or RequireAndVerifyClientCert";
            return Err(error("client_allowed_sans", message));
        }
        if let (Some(authority), ClientAuth::NoClientCert) = (&authority, policy) {
            let message = "it has no effect without client_auth_type; write client_auth_type: \
                           RequireAndVerifyClientCert, or remove it";
            return Err(error(&authority.field, message));
        }
        let chain = verifies.then(|| chain_verifier(authority, provider));
        Ok(Self {
            required,
            chain: chain.transpose()?,
            names,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn protections(&self) -> [bool; 3] {
        [self.required, self.chain.is_some(), self.names.is_some()]
    }
}

/// Returns what verifies that a certificate is signed by the authority.
fn chain_verifier(
    authority: Option<Pem>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let field = authority
        .as_ref()
        .map_or("client_ca_file", |pem| &pem.field);
    let unusable = |failed: String| error(field, format!("no authority for clients: {failed}"));
    let mut roots = RootCertStore::empty();
    match &authority {
        Some(pem) => {
            for certificate in pem.certificates()? {
                let added = roots.add(certificate);
                added.map_err(|failed| unusable(failed.to_string()))?;
            }
        }
        // As in Go, the authorities of the system.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    verifier
        .build()
        .map_err(|failed| unusable(failed.to_string()))
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain
            .as_ref()
            .map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.names {
            let names = names(end_entity).ok_or(CertificateError::BadEncoding)?;
            if !names.iter().any(|name| allowed.contains(name)) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the subject alternative names of a certificate: host names, e-mail addresses, IP
/// addresses and URIs. `None` if it cannot be parsed.
fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok()?;
    let Some((_, SubjectAltName(names))) = names else {
        return Some(Vec::new());
    };
    let text = |name| match name {
        GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) => Some(name.to_string()),
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
        GeneralName::IpAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            let address = v4.or(<[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from));
            // As Go writes it: an IPv4-mapped IPv6 address is an IPv4 address.
            Some(address.ok()?.to_canonical().to_string())
        }
        _ => None,
    };
    Some(names.into_iter().filter_map(text).collect())
}
