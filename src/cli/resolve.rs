//! From flags to checked settings, without touching the network or the process environment.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exporter_web::{WebArgs, WebConfig};
use orgdata_api::{BaseUrl, Filters, KEY_VARIABLE, KeySource};
use ring::hmac;
use secrecy::SecretString;

use super::flags::Flags;
use super::values;
use crate::audit::{Exclude, Privacy, Redact};
use crate::ledger::{self, ActorPrivacy};
use crate::machine::ThisMachine;
use crate::records::{Delivery, Redaction};
use crate::{audit, tickets};

/// The maximum number of dead letters that are kept.
const MAX_DEAD_LETTERS: u32 = 10_000;

/// The shortest key of the hash, in bytes.
const MIN_HASH_KEY: usize = 16;

/// Checked settings, one field for each part of the program.
#[derive(Clone, Debug)]
pub struct ExporterSettings {
    /// The API client.
    pub(crate) api: orgdata_api::ClientSettings,
    /// The audit tail; `None` if it is off.
    pub(crate) audit: Option<audit::TailSettings>,
    /// The ticket scan; `None` if it is off.
    pub(crate) tickets: Option<tickets::ScanSettings>,
    /// The state file.
    pub ledger: ledger::LedgerOptions,
    /// Log records; `None` without a collector.
    pub(crate) otlp: Option<Delivery>,
    /// The web server.
    pub(crate) web: WebArgs,
    /// `--web.config.file`; the default without one.
    pub web_config: WebConfig,
    /// `--metrics.zero-hold`.
    pub(crate) zero_hold: Duration,
    /// `--shutdown.grace`.
    pub(crate) shutdown_grace: Duration,
}

// === impl ExporterSettings ===

impl ExporterSettings {
    /// Checks everything that can be checked without a connection. `env` reads one variable; an empty one is unset.
    ///
    /// # Errors
    /// If a setting is wrong or missing: for each one a line with the flag, its value, and what would be right.
    pub fn resolve(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let env = &|name: &str| env(name).filter(|value| !value.is_empty());
        let mut wrong = Vec::new();
        let base_url = note(base_url(flags), &mut wrong);
        let key = note(key(flags, env), &mut wrong);
        let filters = Filters {
            activity_types: flags.audit.activity_types.clone(),
            deal_ids: flags.audit.deal_ids.clone(),
            actor_emails: flags.audit.actor_emails.clone(),
            target_emails: flags.audit.target_emails.clone(),
        };
        let delivery = Delivery::from_env(
            flags.otlp.endpoint.as_deref(),
            flags.otlp.protocol.as_deref(),
            flags.otlp.bearer_token_file.as_deref(),
            flags.otlp.batch_size,
            env,
        );
        let otlp = note(delivery, &mut wrong);
        let privacy = note(privacy(flags), &mut wrong).unwrap_or_default();
        let audit = flags.audit.enabled.then_some(audit::TailSettings {
            poll_interval: flags.audit.poll_interval,
            start: flags.audit.start,
            reread_interval: flags.audit.reread_interval,
            reread_window: flags.audit.reread_window,
            page_size: flags.api.page_size,
            excluded: audit::Excluded {
                metrics: Exclude::new(&flags.metrics.exclude_activity_types),
                records: Exclude::new(&flags.otlp.exclude_activity_types),
            },
            privacy,
        });
        let tickets = flags.tickets.enabled.then(|| tickets::ScanSettings {
            scan_interval: flags.tickets.scan_interval,
            // The series must not be absent between two scans that work.
            max_age: flags
                .tickets
                .max_age
                .max(flags.tickets.scan_interval.saturating_mul(2)),
            open_states: flags.tickets.open_states.clone(),
            priorities: flags.tickets.priorities.clone(),
            page_size: flags.api.page_size,
        });
        if audit.is_none() && tickets.is_none() {
            wrong.push(
                "--audit.enabled=false and --tickets.enabled=false leave nothing to do; enable one of them"
                    .to_owned(),
            );
        }
        let mut ledger = ledger_settings(flags, &mut wrong);
        let web_config = note(flags.web.config(), &mut wrong);
        let (Some(base_url), Some(key), Some(otlp), Some(web_config), true) =
            (base_url, key, otlp, web_config, wrong.is_empty())
        else {
            return Err(wrong);
        };
        ledger.base_url = base_url.to_string();
        ledger.outbox = otlp.is_some();
        Ok(Self {
            audit,
            tickets,
            ledger,
            otlp,
            api: orgdata_api::ClientSettings {
                base_url,
                key,
                timeout: flags.api.timeout,
                max_requests_per_second: flags.api.max_requests_per_second,
                ca_file: flags.api.ca_file.clone(),
                read_file: exporter_web::read_file,
                filters,
            },
            web: flags.web.clone(),
            web_config,
            zero_hold: flags.metrics.zero_hold,
            shutdown_grace: flags.process.shutdown_grace,
        })
    }
}

/// Returns a setting, and takes note of what is wrong with it.
fn note<T>(setting: Result<T, String>, wrong: &mut Vec<String>) -> Option<T> {
    setting.map_err(|error| wrong.push(error)).ok()
}

fn in_file(flag: &str, path: &Path, error: impl Display) -> String {
    format!("{flag} {:?}: {error}", path.display().to_string())
}

fn base_url(flags: &Flags) -> Result<BaseUrl, String> {
    let text = flags.api.base_url.as_ref().ok_or(
        "--api.base-url is missing; give the API's base URL, like https://api.example.com, or try `orgdata-exporter demo`",
    )?;
    // A password in it must not be shown.
    let base_url = BaseUrl::parse(text).map_err(|error| format!("--api.base-url: {error}"))?;
    let shown = base_url.to_string();
    let mut ends = ["/v1", "/v1/audit-logs", "/v1/tickets"].into_iter();
    if let Some(end) = ends.find(|end| shown.ends_with(end)) {
        return Err(format!("--api.base-url {shown:?}: remove {end}"));
    }
    if base_url.is_plain_remote() && !flags.api.allow_plain_http {
        return Err(format!(
            "--api.base-url {shown:?} would send the API key unencrypted over the network; use https://, or give --api.allow-plain-http to allow it"
        ));
    }
    Ok(base_url)
}

fn key(flags: &Flags, env: &dyn Fn(&str) -> Option<String>) -> Result<KeySource, String> {
    if let Some(path) = &flags.api.key_file {
        let file = KeySource::File(path.clone());
        let checked = file.check(exporter_web::read_file);
        checked.map_err(|error| format!("--api.key-file: {error}"))?;
        return Ok(file);
    }
    let key = env(KEY_VARIABLE).ok_or_else(|| {
        format!("there is no API key; give --api.key-file FILE, or set the variable {KEY_VARIABLE}")
    })?;
    let source = KeySource::Value(SecretString::from(key));
    source.check(exporter_web::read_file)?;
    Ok(source)
}

/// Returns what records and dead letters say of users, and of `metadata`.
fn privacy(flags: &Flags) -> Result<Privacy, String> {
    let given = flags.otlp.redact.iter().map(|path| path.trim());
    let paths: Vec<_> = (given.filter(|path| !path.is_empty()))
        .map(str::to_owned)
        .collect();
    let is_wrong = |path: &&String| path.split('.').any(|key| key.trim().is_empty());
    if let Some(path) = paths.iter().find(is_wrong) {
        return Err(format!(
            "--otlp.redact: '{path}' is not a path; give keys of metadata joined by dots, such as contact.email"
        ));
    }
    let actor = actor_privacy("--otlp.actor", &flags.otlp.actor, flags)?;
    let redaction = Redaction::new(matches!(actor, ActorPrivacy::Full), &paths);
    Ok(Privacy {
        redact: redaction.map(|redaction| Arc::new(redaction) as Arc<dyn Redact>),
        hash: Some(actor).filter(|actor| matches!(actor, ActorPrivacy::Hash(_))),
    })
}

/// Returns the settings without those that others decide.
fn ledger_settings(flags: &Flags, wrong: &mut Vec<String>) -> ledger::LedgerOptions {
    let label = actor_privacy("--metrics.actor-label", &flags.metrics.actor_label, flags);
    let label = note(label, wrong).unwrap_or(ActorPrivacy::None);
    ledger::LedgerOptions {
        path: values::state_path(&flags.state.path),
        max_size: flags.state.max_size,
        base_url: String::new(),
        outbox: false,
        actor_label: label,
        max_actors: flags.metrics.max_actors as usize,
        max_dead_letters: MAX_DEAD_LETTERS,
        machine: Arc::new(ThisMachine),
    }
}

/// Returns what a flag with this value shows of an actor.
fn actor_privacy(flag: &str, value: &str, flags: &Flags) -> Result<ActorPrivacy, String> {
    Ok(match value {
        "full" => ActorPrivacy::Full,
        "id" => ActorPrivacy::Id,
        "name" => ActorPrivacy::Name,
        "hash" => ActorPrivacy::Hash(hash_key(flag, flags)?),
        _ => ActorPrivacy::None,
    })
}

/// Returns the key of the hash that a flag asks for.
fn hash_key(of: &str, flags: &Flags) -> Result<hmac::Key, String> {
    const FLAG: &str = "--metrics.hash-key-file";
    let Some(path) = &flags.metrics.hash_key_file else {
        return Err(format!(
            "{of}=hash needs {FLAG} FILE, with a secret of at least {MIN_HASH_KEY} bytes"
        ));
    };
    let secret = exporter_web::read_file(path)
        .map_err(|error| in_file(FLAG, path, format!("cannot read it: {error}")))?;
    let secret = secret.trim_ascii();
    if secret.len() < MIN_HASH_KEY {
        let problem = format!(
            "it has fewer than {MIN_HASH_KEY} bytes, so ids could be guessed from their hashes; use a longer key"
        );
        return Err(in_file(FLAG, path, problem));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, secret))
}
