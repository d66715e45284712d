//! Promises about tokens and other secrets: each token is used for one join, and the daemons' logs contain no
//! secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::simulate::checker::{Checker, Promise};

/// A token is removed once its machine has joined, and secrets are never logged.
pub struct Secrets;

impl Promise for Secrets {
    fn throughout(&self, checker: &Checker) {
        checker.tokens();
        checker.note_secrets();
    }
}

impl Checker {
    /// Whether a bootstrap token for this machine exists.
    pub fn token_of(&self, machine: &str) -> bool {
        self.world.kube.list("Secret").iter().any(|secret| {
            let encoded = secret["data"]["description"].as_str().unwrap_or_default();
            let text = STANDARD.decode(encoded).unwrap_or_default();
            !machine.is_empty() && String::from_utf8_lossy(&text).ends_with(&format!("machine {machine}"))
        })
    }

    /// Checks that no token exists after its machine has joined, even if the token has not expired.
    pub fn tokens(&self) {
        let (kube, [vms, ..]) = (&self.world.kube, self.world.pve.changes());
        let now = Some([kube.latest_change("Secret"), kube.latest_change("ConfigMap"), vms]);
        if std::mem::replace(&mut self.inner().looked_at.tokens, now) == now {
            return;
        }
        self.nothing_joins_unasked();
        for vmid in self.ours() {
            let Some(record) = self.record(vmid) else { continue };
            let machine = record["name"].as_str().unwrap_or_default();
            if record["nodeUid"].is_string() && record["tokenId"].is_null() && self.token_of(machine) {
                self.violated(&format!("{machine} is a node, but its token still exists"));
            }
        }
    }

    pub fn note_secrets(&self) {
        let now = (self.world.kube.latest_change("Secret"), self.log.suspicious());
        if std::mem::replace(&mut self.inner().looked_at.secrets, now) == now {
            return;
        }
        let secrets = self.world.kube.list("Secret").into_iter().filter_map(|secret| {
            let encoded = secret["data"]["token-secret"].as_str()?;
            String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
        });
        let leaks = {
            let mut inner = self.inner();
            inner.secrets.extend(secrets);
            self.log.leaks(&inner.secrets)
        };
        if let Some(line) = leaks.first() {
            self.violated(&format!("the log line `{line}` contains a secret"));
        }
    }
}
