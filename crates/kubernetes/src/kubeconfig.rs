//! Reports in one sentence what a kubeconfig lacks. kube's own errors are unsuitable, because they contain
//! the names of Rust types.

use kube::config::Kubeconfig;

/// Returns what the kubeconfig lacks for this context, or for the current one if `context` is `None`. Returns
/// `None` if nothing is missing.
pub(super) fn lacks(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|one| one.name.as_str()).collect();
    let current = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let Some(name) = context.or(current) else {
        return Some(format!(
            "it has no current context: name one with `context` in `[kubernetes]` ({}), or with `kubectl config use-context`",
            listed(&contexts)
        ));
    };
    let Some(context) = kubeconfig.contexts.iter().find(|one| one.name == name) else {
        return Some(format!("it has no context `{name}` ({})", listed(&contexts)));
    };
    let Some(parts) = &context.context else {
        return Some(format!("its context `{name}` names no cluster"));
    };
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == parts.cluster);
    let Some(cluster) = cluster.and_then(|one| one.cluster.as_ref()) else {
        let clusters: Vec<&str> = kubeconfig.clusters.iter().map(|one| one.name.as_str()).collect();
        let (cluster, there) = (&parts.cluster, listed(&clusters));
        return Some(format!(
            "its context `{name}` names the cluster `{cluster}`, which the kubeconfig does not define \
                ({there})"
        ));
    };
    if cluster.proxy_url.is_some() {
        let cluster = &parts.cluster;
        return Some(format!(
            "its cluster `{cluster}` uses a proxy (`proxy-url`), but only direct connections are supported"
        ));
    }
    let user = parts.user.as_deref().unwrap_or_default();
    if !user.is_empty() && !kubeconfig.auth_infos.iter().any(|one| one.name == user) {
        let users: Vec<&str> = kubeconfig.auth_infos.iter().map(|one| one.name.as_str()).collect();
        let there = listed(&users);
        return Some(format!(
            "its context `{name}` names the user `{user}`, which the kubeconfig does not define \
                ({there})"
        ));
    }
    None
}

/// The program that provides the token for a context's user, if any.
pub(super) fn program(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == name)?.context.as_ref()?;
    let user = kubeconfig.auth_infos.iter().find(|one| Some(&one.name) == context.user.as_ref())?;
    user.auth_info.as_ref()?.exec.as_ref().map(|exec| exec.command.clone().unwrap_or_default())
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none exists".to_owned() } else { format!("available: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
current-context: home
contexts:
- name: home
  context: {cluster: c1, user: admin}
- name: away
  context: {cluster: c2, user: admin}
clusters:
- name: c1
  cluster: {server: \"https://10.0.0.1:6443\"}
users:
- name: admin
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}
";

    fn read(text: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(text).unwrap()
    }

    #[test]
    fn what_is_missing_is_said_with_what_there_is() {
        let whole = read(WHOLE);
        assert_eq!(lacks(&whole, None), None);
        let said = |kubeconfig: &Kubeconfig, context| lacks(kubeconfig, context).unwrap();
        assert!(
            said(&read(&WHOLE.replace("current-context: home\n", "")), None)
                .contains("(available: home, away)")
        );
        assert_eq!(said(&whole, Some("abroad")), "it has no context `abroad` (available: home, away)");
        assert_eq!(
            said(&whole, Some("away")),
            "its context `away` names the cluster `c2`, which the kubeconfig does not define (available: c1)"
        );
        let behind = read(&WHOLE.replace("cluster: {server", "cluster: {proxy-url: \"http://p:1\", server"));
        assert!(said(&behind, None).contains("uses a proxy"));
        let without_user = read(&WHOLE.replace("- name: admin\n  user", "- name: other\n  user"));
        assert!(said(&without_user, None).contains("names the user `admin`"));
        assert!(said(&read("apiVersion: v1\nkind: Config\n"), None).contains("none exists"));
    }

    #[test]
    fn a_program_that_gives_tokens_is_named() {
        assert_eq!(program(&read(WHOLE), None).as_deref(), Some("aws"));
        let certificate = WHOLE.replace(
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}",
            "token: x",
        );
        assert_eq!(program(&read(&certificate), None), None);
    }
}
