//! Finds credentials that expire soon. `check` looks for them once; the daemon does so every hour, even if it
//! is not the leader.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;

use files::ReadSecret;
use kubernetes::{Expiry, certificates_end, expiries};
use observability::{Board, Problem};
use runtime::clock::SharedClock;
use settings::{Config, ProxmoxTrust};

/// The interval between the daemon's checks. The files may be replaced while the daemon runs.
const EVERY: Duration = Duration::from_hours(1);
/// A credential that expires within this time is reported as a problem.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// The advice that follows a report of credentials that expire soon.
pub(super) const WAY_OUT: &str = "renew the credential, and restart the daemon";

/// Checks the credentials repeatedly until the future is dropped.
pub(super) async fn follow(board: &Board, settings: impl Fn() -> Arc<Config>, clock: SharedClock) {
    loop {
        let config = settings();
        let found = tokio::task::spawn_blocking(move || credentials(&config)).await.unwrap_or_default();
        match expiry_text(&found, clock.now()) {
            Some(words) => board.problem(&Problem::Credentials, &format!("{words}: {WAY_OUT}")),
            None => board.clear(&Problem::Credentials),
        }
        board.credentials(found.into_iter().map(|one| (one.credential, one.at)).collect());
        tokio::time::sleep(EVERY).await;
    }
}

/// The credentials of a configuration that expire soon, as one sentence.
pub(super) fn soon(config: &Config, now: Timestamp) -> Option<String> {
    expiry_text(&credentials(config), now)
}

/// The credentials that have an expiry time.
fn credentials(config: &Config) -> Vec<Expiry> {
    let kubernetes = config.kubernetes.as_ref().and_then(|table| {
        let kubeconfig = table.kubeconfig.read().ok()?;
        Some(expiries(&kubeconfig, table.context.as_deref()))
    });
    let mut all = kubernetes.unwrap_or_default();
    for table in config.clusters() {
        if let Some(at) = authorities_end(&table.trust) {
            let region =
                table.region.as_ref().map(|region| format!(" of region {region}")).unwrap_or_default();
            all.push(Expiry { credential: format!("Proxmox VE certificate authority{region}"), at });
        }
    }
    all
}

/// The time at which the last of the API's trusted certificate authorities expires.
fn authorities_end(trust: &ProxmoxTrust) -> Option<Timestamp> {
    match trust {
        ProxmoxTrust::CaFile(file) => certificates_end(&std::fs::read(file).ok()?),
        ProxmoxTrust::CaCredential(credential) => {
            certificates_end(credential.read().ok()?.expose_secret().as_bytes())
        }
        // There are too many system authorities to list, and system updates renew them.
        ProxmoxTrust::System | ProxmoxTrust::Fingerprint(_) => None,
    }
}

/// Lists the credentials that expire soon or have expired, earliest first.
fn expiry_text(found: &[Expiry], now: Timestamp) -> Option<String> {
    let mut soon: Vec<&Expiry> = found.iter().filter(|one| one.at.duration_since(now) < SOON).collect();
    soon.sort_by_key(|one| one.at);
    let each: Vec<String> = soon
        .iter()
        .map(|one| {
            let ends = if one.at <= now { "expired" } else { "expires" };
            format!("the {} {ends} at {}", one.credential, one.at.strftime("%Y-%m-%d %H:%M UTC"))
        })
        .collect();
    (!each.is_empty()).then(|| each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_within_two_weeks_is_a_problem() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let expiry = |credential: &str, at: &str| Expiry {
            credential: credential.to_owned(),
            at: at.parse().unwrap(),
        };
        let far = expiry("token of the kubeconfig", "2027-11-28T12:00:00Z");
        assert_eq!(expiry_text(std::slice::from_ref(&far), now), None);
        let near = expiry("client certificate of the kubeconfig", "2026-12-05T09:30:00Z");
        let over = expiry("Proxmox VE certificate authority", "2026-11-01T00:00:00Z");
        assert_eq!(
            expiry_text(&[far, near, over], now).as_deref(),
            Some(
                "the Proxmox VE certificate authority expired at 2026-11-01 00:00 UTC; \
                 the client certificate of the kubeconfig expires at 2026-12-05 09:30 UTC"
            )
        );
    }
}
