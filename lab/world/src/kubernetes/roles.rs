//! Rights that Roles and ClusterRoles grant through their bindings (`plugin/pkg/auth/authorizer/rbac`).

use serde_json::Value;

use super::{
    access::Identity,
    kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING},
    object::{list, namespace, text},
    spec::Rule,
    state::State,
};

impl State {
    /// The rules that the bindings grant to a user or to one of the groups.
    pub(super) fn granted(&self, user: &str, groups: &[String]) -> Vec<Rule> {
        let mut rules = Vec::new();
        for binding in self.store.all(&ROLE_BINDING).filter(|one| is_for(one, user, groups)) {
            let home = namespace(binding);
            let role = text(binding, "/roleRef/name");
            let found = match text(binding, "/roleRef/kind") {
                "ClusterRole" => self.store.get(&CLUSTER_ROLE, "", role),
                _ => self.store.get(&ROLE, home, role),
            };
            rules.extend(found.iter().flat_map(|role| rules_of(role, Some(home))));
        }
        for binding in self.store.all(&CLUSTER_ROLE_BINDING).filter(|one| is_for(one, user, groups)) {
            let found = self.store.get(&CLUSTER_ROLE, "", text(binding, "/roleRef/name"));
            rules.extend(found.iter().flat_map(|role| rules_of(role, None)));
        }
        rules
    }
}

/// Whether a binding names the user, or one of the groups.
fn is_for(binding: &Value, user: &str, groups: &[String]) -> bool {
    list(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "ServiceAccount" => {
                let home = match text(subject, "/namespace") {
                    "" => namespace(binding),
                    home => home,
                };
                user == Identity::account_name(home, name)
            }
            "Group" => groups.iter().any(|group| group == name),
            "User" => user == name,
            _ => false,
        }
    })
}

fn rules_of(role: &Value, home: Option<&str>) -> Vec<Rule> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        list(rule, field).iter().filter_map(Value::as_str).map(String::from).collect()
    };
    let rules = list(role, "/rules").iter().map(|rule| Rule {
        verbs: words(rule, "/verbs"),
        groups: words(rule, "/apiGroups"),
        resources: words(rule, "/resources"),
        namespace: home.map(String::from),
        names: words(rule, "/resourceNames"),
    });
    rules.collect()
}
