//! Bootstrap tokens: their signatures in cluster-info, and the removal of expired tokens.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    access::secret_field,
    kinds::{CONFIG_MAP, SECRET},
    object::{self, Key},
    state::{State, Work},
};

const BLOCK: usize = 64;

/// HMAC-SHA256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; BLOCK];
    let hashed;
    let key = if key.len() > BLOCK {
        hashed = Sha256::digest(key);
        hashed.as_slice()
    } else {
        key
    };
    for (slot, byte) in block.iter_mut().zip(key) {
        *slot = *byte;
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

/// A detached JWS over a kubeconfig, as the bootstrap signer writes it: the payload is left out.
pub(super) fn signature(kubeconfig: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256", "kid": id }).to_string());
    let payload = URL_SAFE_NO_PAD.encode(kubeconfig);
    let mac = hmac(secret.as_bytes(), format!("{header}.{payload}").as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac))
}

/// The kubeconfig in cluster-info, which contains no credentials.
fn public_kubeconfig(endpoint: &str, ca_pem: &str) -> String {
    let ca = STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: https://{endpoint}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"
    )
}

/// The key of the ConfigMap `cluster-info`.
fn cluster_info() -> Key {
    ("kube-public".into(), "cluster-info".into())
}

impl State {
    /// Writes the current endpoint and CA to cluster-info. The signatures are updated later.
    pub(super) fn write_cluster_info(&mut self) {
        let text = public_kubeconfig(&self.spec.endpoint, &self.spec.ca_pem);
        if self.store.get(&CONFIG_MAP, "kube-public", "cluster-info").is_none() {
            let map = json!({
                "metadata": { "name": "cluster-info", "namespace": "kube-public" },
                "data": { "kubeconfig": text },
            });
            self.create(&CONFIG_MAP, map);
        } else {
            self.edit(&CONFIG_MAP, &cluster_info(), |map| map["data"]["kubeconfig"] = json!(text));
        }
    }

    /// Removes expired tokens, and updates the signatures.
    pub(super) fn tend_tokens(&mut self) {
        let now = self.now();
        let mut next: Option<Timestamp> = None;
        let mut expired = Vec::new();
        let mut signing = Vec::new();
        for secret in self.store.within(&SECRET, "kube-system") {
            if secret["type"] != "bootstrap.kubernetes.io/token" {
                continue;
            }
            let field = |name: &str| secret_field(secret, name);
            if let Some(text) = field("expiration") {
                match text.parse::<Timestamp>() {
                    Ok(end) if end > now => next = Some(next.map_or(end, |known| known.min(end))),
                    // A token with an unreadable expiration is treated as expired.
                    _ => {
                        expired.push(object::key(secret));
                        continue;
                    }
                }
            }
            let (Some(id), Some(key)) = (field("token-id"), field("token-secret")) else { continue };
            let named = object::name(secret) == format!("bootstrap-token-{id}");
            if named && field("usage-bootstrap-signing").as_deref() == Some("true") {
                signing.push((id, key));
            }
        }
        for key in expired {
            self.erase(&SECRET, &key);
        }
        if let Some(next) = next {
            let wait = std::time::Duration::try_from(next.duration_since(now)).unwrap_or_default();
            self.wake(Work::Tokens, wait);
        }
        self.edit(&CONFIG_MAP, &cluster_info(), |map| {
            let Some(text) = map["data"]["kubeconfig"].as_str().map(String::from) else { return };
            let Some(data) = map["data"].as_object_mut() else { return };
            data.retain(|name, _| !name.starts_with("jws-kubeconfig-"));
            for (id, key) in &signing {
                data.insert(format!("jws-kubeconfig-{id}"), Value::String(signature(&text, id, key)));
            }
        });
    }

    /// Whether cluster-info contains a valid signature made with this token.
    pub(super) fn is_signed(&self, id: &str, secret: &str) -> bool {
        let Some(map) = self.store.get(&CONFIG_MAP, "kube-public", "cluster-info") else { return false };
        let Some(text) = map["data"]["kubeconfig"].as_str() else { return false };
        map["data"][format!("jws-kubeconfig-{id}")] == signature(text, id, secret)
    }
}

#[cfg(test)]
mod tests {
    use super::hmac;

    #[test]
    fn the_message_authentication_code_is_that_of_rfc_4231() {
        let code = hmac(b"Jefe", b"what do ya want for nothing?");
        let start: [u8; 8] = code[..8].try_into().expect("32 bytes");
        let end: [u8; 8] = code[24..].try_into().expect("32 bytes");
        assert_eq!(u64::from_be_bytes(start), 0x5bdc_c146_bf60_754e);
        assert_eq!(u64::from_be_bytes(end), 0x9dec_58b9_64ec_3843);
    }
}
