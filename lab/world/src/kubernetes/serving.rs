//! Serving certificates of kubelets. A kubelet requests one if `serverTLSBootstrap` is set in its own
//! configuration or in the cluster's. An approver may approve the request. The signer of
//! kube-controller-manager signs approved requests.
//!
//! Based on `pkg/kubelet/certificate/kubelet.go`, `pkg/controller/certificates/signer` and the admission
//! plugin `CertificateApproval` of Kubernetes 1.36.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use super::{
    access::{Attempt, Identity},
    kinds::SIGNING_REQUEST,
    object::{self, Key, list, text},
    path::Route,
    refusal::Refusal,
    state::{State, Work},
};

/// The time from the registration of a Node to its kubelet's first certificate request.
const FIRST: Duration = Duration::from_millis(400);
/// How long a kubelet waits for its certificate before it asks again.
const ASK_AGAIN: Duration = Duration::from_mins(15);
/// The time from the approval of a certificate request to its signature.
const SIGNER: Duration = Duration::from_millis(20);

impl State {
    /// Requests the serving certificate of a kubelet, unless it has one.
    pub(super) fn ask_to_serve(&mut self, name: &str) {
        if !self.serves_by_request(name) || !self.hears(name) {
            return;
        }
        let Some(kubelet) = self.kubelets.get(name) else { return };
        let last = kubelet.serving_request.clone().unwrap_or_default();
        let has_one = self
            .store
            .get(&SIGNING_REQUEST, "", &last)
            .is_some_and(|request| !text(&request, "/status/certificate").is_empty());
        let Some(pem) = pem(name, &kubelet.machine.address).filter(|_| !has_one) else { return };
        let request = format!("csr-{}", self.suffix());
        let object = json!({
            "metadata": { "name": request, "generateName": "csr-" },
            "spec": {
                "request": STANDARD.encode(pem),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
                "username": format!("system:node:{name}"),
                "groups": ["system:nodes", "system:authenticated"],
            },
            "status": {},
        });
        self.create(&SIGNING_REQUEST, object);
        if let Some(kubelet) = self.kubelets.get_mut(name) {
            kubelet.serving_request = Some(request);
        }
        self.wake(Work::AskToServe(name.into()), ASK_AGAIN);
    }

    fn serves_by_request(&self, name: &str) -> bool {
        let own =
            self.kubelets.get(name).and_then(|kubelet| kubelet.settings["serverTLSBootstrap"].as_bool());
        own.unwrap_or(self.server_tls_bootstrap)
    }

    /// Plans the certificate request of a kubelet that has registered its Node.
    pub(super) fn will_ask_to_serve(&mut self, name: &str) {
        if self.serves_by_request(name) {
            self.wake(Work::AskToServe(name.into()), FIRST);
        }
    }

    /// Plans the signature of a request that has been approved.
    pub(super) fn request_changed(&mut self, key: &Key, new: Option<&Value>) {
        let waits =
            |new: &Value| text(new, "/status/certificate").is_empty() && object::holds(new, "Approved");
        if new.is_some_and(waits) {
            self.wake(Work::Sign(key.1.clone()), SIGNER);
        }
    }

    /// Signs a request. Any certificate will do, since no client in this cluster connects to a kubelet.
    pub(super) fn sign(&mut self, name: &str) {
        let certificate = KeyPair::generate().and_then(|key| CertificateParams::default().self_signed(&key));
        let Ok(certificate) = certificate else { return };
        let certificate = STANDARD.encode(certificate.pem());
        self.edit(&SIGNING_REQUEST, &(String::new(), name.into()), |request| {
            request["status"]["certificate"] = json!(certificate);
        });
    }

    /// Checks that a client may approve requests for the request's signer. The client's access to the
    /// `approval` subresource is checked separately.
    ///
    /// # Errors
    /// Returns 403 with the plugin's message if the right is missing.
    pub(super) fn may_approve(&self, who: &Identity, route: &Route) -> Result<(), Refusal> {
        let name = route.name.as_deref().unwrap_or("");
        let Some(request) = self.store.get(&SIGNING_REQUEST, "", name) else { return Ok(()) };
        let signer = text(&request, "/spec/signerName");
        let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
        let group = SIGNING_REQUEST.group;
        let may =
            |name| who.may(&Attempt { verb: "approve", group, resource: "signers", namespace: "", name });
        if may(signer) || may(&domain) {
            return Ok(());
        }
        let message = format!(
            "{} \"{name}\" is forbidden: user not permitted to approve requests with signerName \"{signer}\"",
            SIGNING_REQUEST.resource()
        );
        let details = json!({ "name": name, "group": group, "kind": SIGNING_REQUEST.plural });
        Err(Refusal::new(403, "Forbidden", message, details))
    }
}

/// Returns the certificate request after a write to its `approval` subresource. Such a write changes only the
/// conditions.
pub(super) fn approved(old: &Value, new: &Value) -> Value {
    let mut kept = old.clone();
    kept["status"]["conditions"] = json!(list(new, "/status/conditions"));
    kept
}

/// Records in a certificate request which client created it. Overwrites what the client stated about itself.
pub(super) fn signed_by(who: &Identity, request: &mut Value) {
    if request["spec"].is_object() {
        request["spec"]["username"] = json!(who.name);
        request["spec"]["groups"] = json!(who.groups);
    }
}

/// A certificate request in PKCS#10 form, as a kubelet writes it.
fn pem(name: &str, address: &str) -> Option<String> {
    let mut asked = CertificateParams::default();
    asked.distinguished_name = DistinguishedName::new();
    asked.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    asked.distinguished_name.push(DnType::CommonName, format!("system:node:{name}"));
    asked.subject_alt_names.push(SanType::DnsName(name.try_into().ok()?));
    asked.subject_alt_names.extend(address.parse().ok().map(SanType::IpAddress));
    let key = KeyPair::generate().ok()?;
    asked.serialize_request(&key).ok()?.pem().ok()
}
