//! `[kubernetes]`: how the Kubernetes cluster is reached.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::name_rules;
use super::secret::{self, SecretSource};
use super::values::Checker;

/// Checked `[kubernetes]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The kubeconfig.
    pub kubeconfig: SecretSource,
    /// The kubeconfig context; `None`: the current context.
    pub context: Option<String>,
    /// The daemon's own namespace, which holds the records.
    pub namespace: String,
    /// The time limit for one call to the API server.
    pub request_timeout: Duration,
    /// Whether the daemon approves requests for serving certificates from its machines' kubelets.
    pub approve_serving_certificates: bool,
}

/// `[kubernetes]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    kubeconfig_file: Option<Spanned<String>>,
    kubeconfig_credential: Option<Spanned<String>>,
    context: Option<Spanned<String>>,
    namespace: Option<Spanned<String>>,
    request_timeout: Option<Spanned<String>>,
    #[serde(default)]
    approve_serving_certificates: bool,
}

impl Written {
    pub(super) fn check(written: &Spanned<Self>, checker: &mut Checker) -> Option<Kubernetes> {
        let table = Spanned::new(written.span(), ());
        let this = written.get_ref();
        let kubeconfig = secret::source(
            checker,
            &table,
            "kubeconfig",
            this.kubeconfig_file.as_ref(),
            this.kubeconfig_credential.as_ref(),
        );
        let request_timeout =
            checker.positive("request_timeout", this.request_timeout.as_ref(), Duration::from_secs(15));
        let context = checker.named(
            this.context.as_ref(),
            |text| !text.trim().is_empty(),
            |_| "`context` is empty".to_owned(),
            "expected the name of a context; remove the setting to use the current context",
        );
        let namespace = checker.named(
            this.namespace.as_ref(),
            name_rules::is_label,
            |text| format!("`{text}` is not a valid namespace"),
            "expected at most 63 lower-case letters, digits and `-`",
        );
        Some(Kubernetes {
            kubeconfig: kubeconfig?,
            context,
            namespace: namespace.unwrap_or_else(|| "pve-autoscaler".to_owned()),
            request_timeout,
            approve_serving_certificates: this.approve_serving_certificates,
        })
    }
}
