//! Authentication and authorization: who a client is, and what it may do.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{kinds::SECRET, object::text, path::Route, refusal::Refusal, spec::Rule, state::State};

/// The identity of a client.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub name: String,
    pub groups: Vec<String>,
    rights: Rights,
}

#[derive(Clone, Debug)]
enum Rights {
    All,
    Rules(Vec<Rule>),
}

/// An action that a client wants to perform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    /// The resource with its subresource, such as `pods/eviction`.
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Identity {
    /// The user name of a service account.
    pub fn account_name(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// Whether the client may perform this action.
    pub fn may(&self, attempt: &Attempt<'_>) -> bool {
        let Rights::Rules(rules) = &self.rights else { return true };
        let among = |list: &[String], one: &str| list.iter().any(|found| found == "*" || found == one);
        rules.iter().any(|rule| {
            among(&rule.verbs, attempt.verb)
                && among(&rule.groups, attempt.group)
                && among(&rule.resources, attempt.resource)
                && rule.namespace.as_deref().is_none_or(|place| place == attempt.namespace)
                && (rule.names.is_empty() || rule.names.iter().any(|name| name == attempt.name))
        })
    }

    /// Checks that the client may make a request.
    ///
    /// # Errors
    /// Returns 403 with the API server's message if the client may not make the request.
    pub fn check(&self, route: &Route, verb: &str) -> Result<(), Refusal> {
        let kind = route.kind;
        // Every authenticated user may ask about its own identity and permissions.
        if matches!(kind.group, "authorization.k8s.io" | "authentication.k8s.io") && self.name != ANONYMOUS {
            return Ok(());
        }
        let resource = match &route.sub {
            Some(sub) => format!("{}/{sub}", kind.plural),
            None => kind.plural.to_owned(),
        };
        // A Namespace object is authorized as if it were in the namespace that it names.
        let namespace =
            if kind.plural == "namespaces" { route.name.as_deref().unwrap_or("") } else { &route.namespace };
        let name = route.name.as_deref().unwrap_or("");
        let attempt = Attempt { verb, group: kind.group, resource: &resource, namespace, name };
        if self.may(&attempt) {
            return Ok(());
        }
        let what = if name.is_empty() { kind.resource() } else { format!("{} \"{name}\"", kind.resource()) };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let message = format!(
            "{what} is forbidden: User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\" {place}",
            self.name, kind.group
        );
        let details = json!({ "name": name, "group": kind.group, "kind": kind.plural });
        Err(Refusal::new(403, "Forbidden", message, details))
    }
}

const ANONYMOUS: &str = "system:anonymous";

impl State {
    /// Identifies a client by its `Authorization` header.
    ///
    /// # Errors
    /// Returns 401 if the token is unknown.
    pub(super) fn authenticate(&self, authorization: Option<&str>) -> Result<Identity, Refusal> {
        let Some(authorization) = authorization else {
            return Ok(Identity {
                name: ANONYMOUS.into(),
                groups: vec!["system:unauthenticated".into()],
                rights: Rights::Rules(vec![cluster_info()]),
            });
        };
        let groups = |first: &[&str]| {
            first.iter().chain(&["system:authenticated"]).map(|group| (*group).to_owned()).collect()
        };
        let token = authorization.strip_prefix("Bearer ").unwrap_or("").trim();
        if !token.is_empty() && token == self.spec.admin_token {
            let name = "kubernetes-admin".into();
            return Ok(Identity { name, groups: groups(&["kubeadm:cluster-admins"]), rights: Rights::All });
        }
        if let Some(account) = self.spec.service_accounts.iter().find(|one| one.token == token) {
            let home = account.name.split(':').nth(2).unwrap_or_default();
            let of_home = format!("system:serviceaccounts:{home}");
            let groups: Vec<String> = groups(&["system:serviceaccounts", &of_home]);
            let mut rules = account.rules.clone();
            rules.extend(self.granted(&account.name, &groups));
            return Ok(Identity { name: account.name.clone(), groups, rights: Rights::Rules(rules) });
        }
        if let Some(name) = self.account_of(token) {
            let home = name.split(':').nth(2).unwrap_or_default();
            let of_home = format!("system:serviceaccounts:{home}");
            let groups: Vec<String> = groups(&["system:serviceaccounts", &of_home]);
            let rules = self.granted(&name, &groups);
            return Ok(Identity { name, groups, rights: Rights::Rules(rules) });
        }
        self.bootstrap_identity(token)
            .ok_or_else(|| Refusal::new(401, "Unauthorized", "Unauthorized", Value::Null))
    }

    /// Returns the user that a bootstrap token authenticates. `None` if the token may not be used for
    /// authentication.
    pub(super) fn bootstrap_identity(&self, token: &str) -> Option<Identity> {
        let (id, secret) = token.split_once('.')?;
        let object = self.store.get(&SECRET, "kube-system", &format!("bootstrap-token-{id}"))?;
        let field = |name: &str| secret_field(&object, name);
        let live = object["type"] == "bootstrap.kubernetes.io/token"
            && object["metadata"]["deletionTimestamp"].is_null()
            && field("token-id")? == id
            && field("token-secret")? == secret
            && field("usage-bootstrap-authentication").as_deref() == Some("true")
            && field("expiration")
                .is_none_or(|end| end.parse().is_ok_and(|end: jiff::Timestamp| end > self.now()));
        if !live {
            return None;
        }
        let mut groups = vec!["system:bootstrappers".to_owned()];
        for group in
            field("auth-extra-groups").unwrap_or_default().split(',').filter(|group| !group.is_empty())
        {
            // A single group without this prefix makes the whole token invalid.
            if !group.starts_with("system:bootstrappers:") {
                return None;
            }
            groups.push(group.to_owned());
        }
        groups.push("system:authenticated".into());
        let mut rules = Vec::new();
        if groups.iter().any(|group| group == "system:bootstrappers:kubeadm:default-node-token") {
            rules.push(Rule::new("get", "", "nodes", None));
            let mut maps = Rule::new("get", "", "configmaps", Some("kube-system"));
            maps.names = vec!["kubeadm-config".into(), "kubelet-config".into()];
            rules.push(maps);
            rules.push(Rule::new(
                "create get list watch",
                "certificates.k8s.io",
                "certificatesigningrequests",
                None,
            ));
        }
        Some(Identity { name: format!("system:bootstrap:{id}"), groups, rights: Rights::Rules(rules) })
    }

    /// Answers a SelfSubjectAccessReview.
    pub(super) fn review(who: &Identity, mut review: Value) -> Value {
        let part = |name: &str| text(&review, &format!("/spec/resourceAttributes/{name}")).to_owned();
        let (resource, sub) = (part("resource"), part("subresource"));
        let whole = if sub.is_empty() { resource } else { format!("{resource}/{sub}") };
        let allowed = who.may(&Attempt {
            verb: &part("verb"),
            group: &part("group"),
            resource: &whole,
            namespace: &part("namespace"),
            name: &part("name"),
        });
        review["kind"] = json!("SelfSubjectAccessReview");
        review["apiVersion"] = json!("authorization.k8s.io/v1");
        review["metadata"] = json!({});
        review["status"] = json!({ "allowed": allowed });
        review
    }
}

/// Decodes a field of a Secret's `data`.
pub(super) fn secret_field(secret: &Value, name: &str) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(secret["data"][name].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the rule of kubeadm's role `kubeadm:bootstrap-signer-clusterinfo`. kubeadm grants this role only
/// to `system:anonymous`.
fn cluster_info() -> Rule {
    let mut rule = Rule::new("get", "", "configmaps", Some("kube-public"));
    rule.names = vec!["cluster-info".into()];
    rule
}

/// The 403 for a path that is not a resource.
pub(super) fn forbidden_path(who: &Identity, path: &str) -> Refusal {
    let message = format!("forbidden: User \"{}\" cannot get path \"{path}\"", who.name);
    Refusal::new(403, "Forbidden", message, json!({}))
}
