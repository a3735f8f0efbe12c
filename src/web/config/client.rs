//! Certificates of clients: Go's five policies, and the names that are let in.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::ConfigError;

/// `client_auth_type`, as Go's `tls.ClientAuthType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientAuth {
    /// Not asked for.
    None,
    /// Asked for, and not looked at.
    Request,
    /// Has to be there, whoever signed it.
    RequireAny,
    /// If there is one, it has to be signed by the authority.
    VerifyIfGiven,
    /// Has to be there, signed by the authority.
    RequireAndVerify,
}

/// Does what a [`ClientAuth`] says, and looks for an allowed name.
#[derive(Debug)]
pub(super) struct Verifier {
    mandatory: bool,
    /// `None` where any certificate will do.
    chain: Option<Chain>,
    /// `client_allowed_sans`; `None` where every name will do.
    allowed: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// What a certificate has to be signed by.
#[derive(Debug)]
enum Chain {
    Verified(Arc<dyn ClientCertVerifier>),
    /// There is no authority at all, so nothing can be signed by it.
    Nobody,
}

// === impl ClientAuth ===

impl ClientAuth {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        Ok(match text {
            "" | "NoClientCert" => Self::None,
            "RequestClientCert" => Self::Request,
            "RequireAnyClientCert" | "RequireClientCert" => Self::RequireAny,
            "VerifyClientCertIfGiven" => Self::VerifyIfGiven,
            "RequireAndVerifyClientCert" => Self::RequireAndVerify,
            other => {
                return Err(ConfigError::new(
                    "tls_server_config.client_auth_type",
                    format!(
                        "invalid value {other:?}; write NoClientCert, RequestClientCert, RequireAnyClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert"
                    ),
                ));
            }
        })
    }

    pub(super) fn is_mandatory(self) -> bool {
        matches!(self, Self::RequireAny | Self::RequireAndVerify)
    }

    pub(super) fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

// === impl Verifier ===

impl Verifier {
    pub(super) fn new(
        auth: ClientAuth,
        roots: RootCertStore,
        allowed: Option<Vec<String>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        let chain = if !auth.verifies() {
            None
        } else if roots.is_empty() {
            Some(Chain::Nobody)
        } else {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .map_err(|error| {
                        ConfigError::new("tls_server_config.client_ca_file", error.to_string())
                    })?;
            Some(Chain::Verified(verifier))
        };
        Ok(Self {
            mandatory: auth.is_mandatory(),
            chain,
            allowed,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.chain {
            Some(Chain::Verified(verifier)) => verifier.root_hint_subjects(),
            _ => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.chain {
            Some(Chain::Verified(verifier)) => {
                verifier.verify_client_cert(end_entity, intermediates, now)?;
            }
            Some(Chain::Nobody) => return Err(CertificateError::UnknownIssuer.into()),
            None => {}
        }
        if let Some(allowed) = &self.allowed
            && !names(end_entity)
                .ok_or(CertificateError::BadEncoding)?
                .iter()
                .any(|name| allowed.contains(name))
        {
            return Err(CertificateError::ApplicationVerificationFailure.into());
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

/// The subject alternative names of a certificate: host names, e-mail addresses, IP addresses and URIs. `None` where it
/// cannot be read.
fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let mut names = Vec::new();
    let Some((_, SubjectAltName(all))) =
        certificate.tbs_certificate.get::<SubjectAltName>().ok()?
    else {
        return Some(names);
    };
    for name in all {
        match name {
            GeneralName::DnsName(name) => names.push(name.to_string()),
            GeneralName::Rfc822Name(name) => names.push(name.to_string()),
            GeneralName::UniformResourceIdentifier(uri) => names.push(uri.to_string()),
            GeneralName::IpAddress(bytes) => {
                let address = match bytes.as_bytes() {
                    bytes if bytes.len() == 4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
                    bytes => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
                };
                // As Go writes it: an IPv4 address in IPv6 clothes is an IPv4 address.
                names.extend(address.map(|address| address.to_canonical().to_string()));
            }
            _ => {}
        }
    }
    Some(names)
}
