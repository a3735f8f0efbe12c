//! From flags to checked settings. Nothing here touches the real environment: variables come through a function.

use std::time::Duration;

use secrecy::SecretString;

use super::flags::{ActorLabelMode, Flags, LogFormatMode};
use crate::api::{self, BaseUrl, Filters, KEY_VARIABLE, KeySource};
use crate::ledger::{self, ActorLabel, StatePath};
use crate::{audit, otlp, tickets, web};

/// How long ids are kept at least; longer where the re-read looks further back.
const ID_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How many dead letters are kept.
const MAX_DEAD_LETTERS: u32 = 10_000;

/// The state file unless given.
pub const DEFAULT_STATE_PATH: &str = "orgdata-exporter.db";

/// `--metrics.zero-hold` unless given.
const DEFAULT_ZERO_HOLD: Duration = Duration::from_secs(60);

/// Checked settings, one for each part of the program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The client.
    pub api: api::Settings,
    /// The tail; `None` when it is switched off.
    pub audit: Option<audit::Settings>,
    /// The scan; `None` when it is switched off.
    pub tickets: Option<tickets::Settings>,
    /// The state file.
    pub ledger: ledger::Settings,
    /// Log records; `None` without a collector.
    pub otlp: Option<otlp::Settings>,
    /// The web surface.
    pub web: web::Settings,
    /// `--metrics.zero-hold`.
    pub zero_hold: Duration,
    /// `--shutdown.grace`.
    pub shutdown_grace: Duration,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// `--log.level`.
    pub level: tracing::Level,
    /// `--log.format`.
    pub format: LogFormat,
}

/// `--log.format`.
pub type LogFormat = LogFormatMode;

/// A wrong setting; the message is one line that names the flag, the value, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

// === impl LogSettings ===

impl From<&Flags> for LogSettings {
    fn from(flags: &Flags) -> Self {
        Self {
            level: flags.log.level,
            format: flags.log.format,
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Checks everything that can be checked without a connection. `env` reads one variable.
    ///
    /// # Errors
    /// Where a setting is wrong or missing.
    pub fn resolve(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let base_url = base_url(flags)?;
        let key = key(flags, env)?;
        let filters = filters(flags)?;
        if !flags.audit.enabled && !flags.tickets.enabled {
            return Err(SettingsError(
                "--audit.enabled=false and --tickets.enabled=false: nothing is left to do; leave one of them on".to_owned(),
            ));
        }
        let otlp = otlp::Settings::from_env(&flags.otlp.to_otlp(), env)
            .map_err(|error| SettingsError(error.to_string()))?;
        let encoder = otlp::RecordEncoder::new(otlp::Redaction {
            hide_user_names: !flags.otlp.user_names,
            paths: flags.otlp.redact.clone(),
        });
        let ledger = ledger::Settings {
            path: StatePath::parse(flags.state.path.as_deref().unwrap_or(DEFAULT_STATE_PATH)),
            max_size: flags.state.max_size,
            base_url: base_url.to_string(),
            filters: filters.fingerprint(),
            outbox: otlp.is_some(),
            actor_label: actor_label(flags)?,
            max_actors: flags.metrics.max_actors as usize,
            actor_idle: flags.metrics.actor_idle,
            reread_window: flags.audit.reread_window,
            id_retention: ID_RETENTION.max(flags.audit.reread_window.saturating_mul(2)),
            max_dead_letters: MAX_DEAD_LETTERS,
            redact: std::sync::Arc::new(move |raw: &str| {
                ledger::next::Encode::redact(&encoder, raw)
            }),
        };
        let api = api::Settings {
            base_url,
            key,
            timeout: flags.api.timeout,
            max_requests_per_second: flags.api.max_requests_per_second,
            ca_file: flags.api.ca_file.clone(),
            filters,
        };
        Ok(Self {
            api,
            audit: flags.audit.enabled.then_some(audit::Settings {
                poll_interval: flags.audit.poll_interval,
                start: flags.audit.start,
                reread_interval: flags.audit.reread_interval,
                reread_window: flags.audit.reread_window,
                page_size: flags.api.page_size,
            }),
            tickets: flags.tickets.enabled.then(|| tickets::Settings {
                scan_interval: flags.tickets.scan_interval,
                max_age: flags.tickets.max_age,
                open_states: trimmed(&flags.tickets.open_states),
                priorities: trimmed(&flags.tickets.priorities),
                page_size: flags.api.page_size,
            }),
            ledger,
            otlp,
            web: web::Settings {
                listen_addresses: flags.web.listen_addresses.clone(),
                systemd_socket: flags.web.systemd_socket,
                config: web_config(flags)?,
                telemetry_path: flags.web.telemetry_path.clone(),
                limits: web::Limits::default(),
            },
            zero_hold: flags.metrics.zero_hold.unwrap_or(DEFAULT_ZERO_HOLD),
            shutdown_grace: flags.log.shutdown_grace,
        })
    }
}

fn base_url(flags: &Flags) -> Result<BaseUrl, SettingsError> {
    let Some(text) = &flags.api.base_url else {
        return Err(SettingsError(
            "--api.base-url is missing: give the service's base address, like https://api.example.com, or try `orgdata-exporter demo`"
                .to_owned(),
        ));
    };
    let base_url = BaseUrl::parse(text).map_err(|error| {
        SettingsError(format!(
            "--api.base-url {:?}: {error}",
            without_secrets(text)
        ))
    })?;
    if base_url.is_plain_remote() && !flags.api.allow_plain_http {
        return Err(SettingsError(format!(
            "--api.base-url {text:?} would send the API key unencrypted over the network; use https://, or give --api.allow-plain-http if that is what you want"
        )));
    }
    Ok(base_url)
}

/// A base address without what may be secret in it: a password, a key in the query.
pub(crate) fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or(text);
    match text.rsplit_once('@') {
        Some((before, host)) => format!(
            "{}…@{host}",
            before
                .split_once("://")
                .map_or(String::new(), |(scheme, _)| format!("{scheme}://"))
        ),
        None => text.to_owned(),
    }
}

fn key(flags: &Flags, env: &dyn Fn(&str) -> Option<String>) -> Result<KeySource, SettingsError> {
    let source = match (&flags.api.key_file, env(KEY_VARIABLE)) {
        (Some(path), _) => KeySource::File(path.clone()),
        (None, Some(key)) => KeySource::Value(SecretString::from(key)),
        (None, None) => {
            return Err(SettingsError(format!(
                "there is no API key: give --api.key-file FILE, or set the variable {KEY_VARIABLE}"
            )));
        }
    };
    source.check().map_err(|error| match &flags.api.key_file {
        Some(path) => SettingsError(format!(
            "--api.key-file {:?}: {error}",
            path.display().to_string()
        )),
        None => SettingsError(error.to_string()),
    })?;
    Ok(source)
}

fn web_config(flags: &Flags) -> Result<Option<web::WebConfig>, SettingsError> {
    let Some(path) = &flags.web.config_file else {
        return Ok(None);
    };
    // As in the toolkit: an empty name is no file.
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let load = web::WebConfig::load(path);
    load.map(Some).map_err(|error| {
        SettingsError(format!(
            "--web.config.file {:?}: {error}",
            path.display().to_string()
        ))
    })
}

fn filters(flags: &Flags) -> Result<Filters, SettingsError> {
    let deal_ids = trimmed(&flags.audit.deal_ids);
    if let Some(wrong) = deal_ids
        .iter()
        .find(|id| !id.parse::<f64>().is_ok_and(f64::is_finite))
    {
        return Err(SettingsError(format!(
            "--audit.deal-ids {wrong:?} is not a number; give deal ids like 42"
        )));
    }
    Ok(Filters {
        activity_types: trimmed(&flags.audit.activity_types),
        deal_ids,
        actor_emails: trimmed(&flags.audit.actor_emails),
        target_emails: trimmed(&flags.audit.target_emails),
    })
}

fn actor_label(flags: &Flags) -> Result<ActorLabel, SettingsError> {
    Ok(match flags.metrics.actor_label {
        ActorLabelMode::Id => ActorLabel::Id,
        ActorLabelMode::Name => ActorLabel::Name,
        ActorLabelMode::None => ActorLabel::None,
        ActorLabelMode::Hash => {
            let Some(path) = &flags.metrics.hash_key_file else {
                return Err(SettingsError(
                    "--metrics.actor-label=hash needs --metrics.hash-key-file FILE, with a secret of at least 16 bytes".to_owned(),
                ));
            };
            let name = path.display().to_string();
            let secret = std::fs::read(path).map_err(|error| {
                SettingsError(format!(
                    "--metrics.hash-key-file {name:?} cannot be read: {error}"
                ))
            })?;
            let secret = secret.trim_ascii();
            if secret.len() < 16 {
                return Err(SettingsError(format!(
                    "--metrics.hash-key-file {name:?} holds fewer than 16 bytes; names could be guessed from their hashes"
                )));
            }
            ActorLabel::Hash(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret))
        }
    })
}

fn trimmed(values: &[String]) -> Vec<String> {
    values
        .iter()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, one_line};
    use super::*;

    fn resolve(arguments: &[&str]) -> Result<Settings, String> {
        let cli = Cli::try_parse_from(
            std::iter::once("orgdata-exporter").chain(arguments.iter().copied()),
        )
        .map_err(|error| one_line(&error))?;
        let env = |name: &str| (name == KEY_VARIABLE).then(|| "secret".to_owned());
        Settings::resolve(&cli.flags, &env).map_err(|error| error.to_string())
    }

    const URL: &str = "--api.base-url=https://api.example.com/";

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let settings = resolve(&[URL]).expect("valid");
        let audit = settings.audit.expect("on");
        assert_eq!(
            (
                audit.poll_interval.as_secs(),
                audit.page_size,
                audit.reread_interval.as_secs(),
                audit.reread_window.as_secs()
            ),
            (15, 1000, 300, 3600)
        );
        let tickets = settings.tickets.expect("on");
        assert_eq!(
            (tickets.scan_interval.as_secs(), tickets.max_age.as_secs()),
            (60, 900)
        );
        assert_eq!(tickets.priorities, ["BLOCKER", "HIGH", "MEDIUM", "LOW"]);
        assert_eq!(
            (settings.zero_hold.as_secs(), settings.ledger.max_size),
            (60, 256 * 1024 * 1024)
        );
        assert_eq!(settings.api.base_url.to_string(), "https://api.example.com");
        assert!(settings.otlp.is_none() && !settings.ledger.outbox);
    }

    #[test]
    fn wrong_flags_are_one_line_with_the_flag_the_value_and_what_would_be_right() {
        for (arguments, parts) in [
            (
                &["--audit.poll-interval=fast", URL][..],
                &["--audit.poll-interval", "fast", "15s"][..],
            ),
            (
                &["--api.page-size=5000", URL],
                &["--api.page-size", "5000", "1000"],
            ),
            (
                &["--api.max-requests-per-second=0", URL],
                &["--api.max-requests-per-second", "0", "0.5"],
            ),
            (
                &["--audit.start=yesterday", URL],
                &["--audit.start", "yesterday", "oldest"],
            ),
            (
                &["--state.max-size=tiny", URL],
                &["--state.max-size", "tiny", "256MiB"],
            ),
            (
                &["--metrics.actor-label=email", URL],
                &["--metrics.actor-label", "email", "hash"],
            ),
            (
                &["--metrics.actor-label=hash", URL],
                &["--metrics.hash-key-file"],
            ),
            (
                &["--web.listen-address=10917x", URL],
                &["--web.listen-address", "10917x", "10917x:10917"],
            ),
            (
                &["--web.telemetry-path=metrics", URL],
                &["--web.telemetry-path", "metrics"],
            ),
            (
                &["--log.level=loud", URL],
                &["--log.level", "loud", "debug"],
            ),
            (
                &["--audit.deal-ids=abc", URL],
                &["--audit.deal-ids", "abc", "42"],
            ),
            (
                &[
                    "--otlp.protocol=http/json",
                    "--otlp.endpoint=http://localhost:4318",
                    URL,
                ],
                &["--otlp.protocol", "http/json", "http/protobuf"],
            ),
            (
                &["--audit.enabled=false", "--tickets.enabled=false", URL],
                &["--audit.enabled", "--tickets.enabled"],
            ),
            (&["--no.such-flag", URL], &["--no.such-flag"]),
            (&[], &["--api.base-url", "https://api.example.com"]),
            (
                &["--api.base-url=api.example.com"],
                &["--api.base-url", "api.example.com", "https://"],
            ),
            (
                &["--api.base-url=http://api.example.com"],
                &["--api.base-url", "https://", "--api.allow-plain-http"],
            ),
        ] {
            let error = resolve(arguments).expect_err("refused");
            assert!(!error.contains('\n'), "{error}");
            for part in parts {
                assert!(error.contains(part), "{part} is missing in: {error}");
            }
        }
    }

    #[test]
    fn plain_http_needs_to_be_wanted_beyond_loopback() {
        assert!(resolve(&["--api.base-url=http://127.0.0.1:8081"]).is_ok());
        assert!(
            resolve(&[
                "--api.base-url=http://api.example.com",
                "--api.allow-plain-http"
            ])
            .is_ok()
        );
    }

    #[test]
    fn without_a_key_it_says_where_to_put_one() {
        let cli = Cli::try_parse_from(["orgdata-exporter", URL]).expect("valid");
        let error = Settings::resolve(&cli.flags, &|_| None)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("--api.key-file") && error.contains(KEY_VARIABLE),
            "{error}"
        );
    }

    #[test]
    fn an_unreadable_key_file_is_named() {
        let error = resolve(&[URL, "--api.key-file=/nonexistent/key"]).expect_err("refused");
        assert!(
            error.contains("--api.key-file") && error.contains("/nonexistent/key"),
            "{error}"
        );
    }

    #[test]
    fn every_flag_has_its_variable() {
        use clap::CommandFactory;
        for argument in Cli::command()
            .get_arguments()
            .filter(|argument| argument.get_long().is_some())
        {
            let long = argument.get_long().expect("filtered");
            if ["help", "version"].contains(&long) {
                continue;
            }
            let expected = format!("ORGDATA_{}", long.to_uppercase().replace(['.', '-'], "_"));
            assert_eq!(
                argument.get_env().and_then(|name| name.to_str()),
                Some(expected.as_str()),
                "{long}"
            );
        }
    }
}
