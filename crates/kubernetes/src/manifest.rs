//! Applies a manifest like `kubectl apply --server-side`. An administrator runs this during setup.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use runtime::boxed;
use secrecy::SecretString;
use serde_json::Value;

use super::cluster::Cluster;
use super::error::Error;

/// The name of the field manager.
const MANAGER: &str = "pve-autoscaler-setup";

/// A service account's token, and the CA of the API server's certificate.
#[derive(Debug)]
pub struct AccountToken {
    /// The token.
    pub token: SecretString,
    /// Certificates in PEM.
    pub ca_pem: String,
}

impl Cluster {
    /// Applies all objects of a manifest in order, and takes over fields that other clients have set. Returns
    /// the `kind/name` of each object.
    ///
    /// # Errors
    /// Returns an error if the text is not a manifest, or a call fails. Objects that precede the failed one
    /// have been applied.
    #[boxed]
    pub async fn apply_manifest(&self, manifest: &str) -> Result<Vec<String>, Error> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).map_err(|source| {
            Error::Malformed { action: "read the manifest".to_owned(), source: Box::new(source) }
        })?;
        let mut applied = Vec::new();
        for object in objects.iter().filter(|object| object.is_object()) {
            applied.push(self.apply_object(object).await?);
        }
        Ok(applied)
    }

    async fn apply_object(&self, object: &Value) -> Result<String, Error> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        };
        let what = format!("{kind}/{name}");
        let parameters = PatchParams::apply(MANAGER).force();
        self.call(format!("apply {what}"), api.patch(name, &parameters, &Patch::Apply(object))).await?;
        Ok(what)
    }

    /// The token in a Secret of type `kubernetes.io/service-account-token`. Returns `None` if the cluster has
    /// not created the token yet.
    ///
    /// # Errors
    /// Returns an error if the call fails, or the Secret's data is not valid UTF-8.
    #[boxed]
    pub async fn account_token(&self, secret: &str) -> Result<Option<AccountToken>, Error> {
        let action = format!("read the token in secret `{secret}`");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = self.call(action.clone(), secrets.get_opt(secret)).await?;
        let mut data = found.and_then(|secret| secret.data).unwrap_or_default();
        let mut text = |key: &str| {
            let bytes = data.remove(key).map(|bytes| bytes.0).filter(|bytes| !bytes.is_empty());
            bytes.map(String::from_utf8).transpose().map_err(|_| Error::Unusable {
                action: action.clone(),
                reason: format!("its `{key}` is not UTF-8 text"),
            })
        };
        let (token, ca_pem) = (text("token")?, text("ca.crt")?);
        Ok(token.zip(ca_pem).map(|(token, ca_pem)| AccountToken { token: token.into(), ca_pem }))
    }
}
