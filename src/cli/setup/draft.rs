//! A first configuration.

use std::fmt::Write;

use super::Arguments;
use super::answers::Choice;
use super::files::Places;

/// Everything that has to be said; all else is at its default.
pub(super) fn configuration(arguments: &Arguments, choice: &Choice, places: &Places) -> String {
    let source = |key: &str, name: &str, path: &std::path::Path| {
        if places.are_the_units() {
            format!("{key}_credential = {}", quoted(name))
        } else {
            format!("{key}_file = {}", quoted(&path.display().to_string()))
        }
    };
    let token_id = format!("{}!{}", arguments.user, arguments.token);
    let (first, last) = choice.addresses;
    let mut out = format!(
        "# Made by `pve-autoscaler setup`. Every other setting is at its default: pve-autoscaler.toml(5) has all of them.\n\n\
         [proxmox]\nendpoints = [{}]\ntoken_id = {}\n{}\n{}\nresource_pool = {}\n\n[kubernetes]\n{}\n\n[bootstrap]\n\n\
         [[pool]]\nname = \"workers\"\nmin = 0\nmax = {}\ncores = {}\nmemory = \"{}MiB\"\ntemplate = {}\nvmids = {}\n\
         addresses = {}\nprefix = {}\n",
        quoted(arguments.proxmox.trim_end_matches('/')),
        quoted(&token_id),
        source("token", "pve-token", &places.token),
        source("ca", "pve-root-ca", &places.ca),
        quoted(&arguments.resource_pool),
        source("kubeconfig", "kubeconfig", &places.kubeconfig),
        choice.max,
        choice.template.cores.max(1),
        choice.template.memory >> 20,
        choice.template.in_configuration(),
        quoted(&choice.vmids),
        quoted(&format!("{first}-{last}")),
        choice.prefix,
    );
    if let Some(gateway) = choice.gateway {
        let _ = writeln!(out, "gateway = \"{gateway}\"");
    }
    if let Some(dns) = choice.dns {
        let _ = writeln!(out, "dns = [\"{dns}\"]");
    }
    let _ = writeln!(out, "bridge = {}", quoted(&choice.bridge));
    out
}

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
