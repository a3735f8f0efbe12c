//! Names of Go's TLS library, and what rustls has under them.

use rustls::crypto::{SupportedKxGroup, ring};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

use super::ConfigError;

/// Cipher suites that Go knows by name, and rustls with ring has.
const CIPHERS: [(&str, CipherSuite); 9] = [
    (
        "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Cipher suites that Go knows and rustls refuses to have: without forward secrecy, or CBC.
const OLD_CIPHERS: [&str; 8] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// One of them has to be there for HTTP/2 over TLS 1.2 (RFC 9113, section 9.2.2, and what Go makes of it).
const HTTP2_CIPHERS: [CipherSuite; 2] = [
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
];

/// What a list of names comes to.
pub(super) struct Chosen<T> {
    pub(super) chosen: Vec<T>,
    /// Known to the toolkit, but not to be had here.
    pub(super) missing: Vec<String>,
}

/// The range of versions from `min_version` to `max_version`.
pub(super) fn versions(
    min: Option<&str>,
    max: Option<&str>,
) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
    let version = |field: &'static str, given: Option<&str>, default: u8| match given {
        None => Ok(default),
        Some("TLS12") => Ok(12),
        Some("TLS13") => Ok(13),
        Some(old @ ("TLS10" | "TLS11")) => Err(ConfigError::new(
            field,
            format!(
                "{old} is not to be had: this program speaks TLS 1.2 and 1.3 only, older versions are broken; write TLS12 or TLS13"
            ),
        )),
        Some(other) => Err(ConfigError::new(
            field,
            format!("unknown TLS version {other:?}; write TLS12 or TLS13"),
        )),
    };
    let min = version("tls_server_config.min_version", min, 12)?;
    let max = version("tls_server_config.max_version", max, 13)?;
    if min > max {
        return Err(ConfigError::new(
            "tls_server_config.min_version",
            "it is above max_version, so that no version is left; leave one of them out",
        ));
    }
    let all = [(12, &rustls::version::TLS12), (13, &rustls::version::TLS13)];
    Ok(all
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect())
}

/// The cipher suites of TLS 1.2 that are named, in that order. As in Go, those of TLS 1.3 are always on.
pub(super) fn ciphers(names: &[String]) -> Result<Chosen<SupportedCipherSuite>, ConfigError> {
    const FIELD: &str = "tls_server_config.cipher_suites";
    let mut wanted = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        if let Some((_, suite)) = CIPHERS.iter().find(|(known, _)| known == name) {
            wanted.push(*suite);
        } else if OLD_CIPHERS.contains(&name.as_str()) {
            missing.push(name.clone());
        } else {
            let known: Vec<&str> = CIPHERS.iter().map(|(known, _)| *known).collect();
            return Err(ConfigError::new(
                FIELD,
                format!("unknown cipher {name:?}; there are {}", known.join(", ")),
            ));
        }
    }
    if wanted.is_empty() && !missing.is_empty() {
        let message = format!(
            "{} not to be had: this program has cipher suites with forward secrecy and authenticated encryption only; add one like {}, or leave the field out",
            are(&missing),
            CIPHERS[6].0
        );
        return Err(ConfigError::new(FIELD, message));
    }
    let all = ring::ALL_CIPHER_SUITES;
    let mut chosen: Vec<SupportedCipherSuite> = wanted
        .into_iter()
        .filter_map(|wanted| all.iter().find(|suite| suite.suite() == wanted).copied())
        .collect();
    let of_tls13 = all.iter().filter(|suite| suite.tls13().is_some());
    for suite in of_tls13 {
        if !chosen.contains(suite) {
            chosen.push(*suite);
        }
    }
    Ok(Chosen { chosen, missing })
}

/// Whether HTTP/2 can be offered with these, as Go judges it.
pub(super) fn can_http2(suites: &[SupportedCipherSuite]) -> bool {
    suites
        .iter()
        .any(|suite| HTTP2_CIPHERS.contains(&suite.suite()))
}

/// The curves that are named, in that order.
pub(super) fn curves(
    names: &[String],
) -> Result<Chosen<&'static dyn SupportedKxGroup>, ConfigError> {
    const FIELD: &str = "tls_server_config.curve_preferences";
    let mut chosen = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        let group = match name.as_str() {
            "CurveP256" => NamedGroup::secp256r1,
            "CurveP384" => NamedGroup::secp384r1,
            "X25519" => NamedGroup::X25519,
            "CurveP521" | "X25519MLKEM768" => {
                missing.push(name.clone());
                continue;
            }
            _ => {
                return Err(ConfigError::new(
                    FIELD,
                    format!("unknown curve {name:?}; there are X25519, CurveP256 and CurveP384"),
                ));
            }
        };
        chosen.extend(
            ring::ALL_KX_GROUPS
                .iter()
                .copied()
                .filter(|known| known.name() == group),
        );
    }
    if chosen.is_empty() && !missing.is_empty() {
        let message = format!(
            "{} not to be had; add X25519, CurveP256 or CurveP384, or leave the field out",
            are(&missing)
        );
        return Err(ConfigError::new(FIELD, message));
    }
    Ok(Chosen { chosen, missing })
}

/// `A is`, or `A, B are`.
fn are(names: &[String]) -> String {
    format!(
        "{} {}",
        names.join(", "),
        if names.len() == 1 { "is" } else { "are" }
    )
}
