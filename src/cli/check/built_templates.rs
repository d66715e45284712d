//! Checks whether the templates that the configuration describes can be created, and whether they match their
//! description.

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use crate::cli::exit::{FINDINGS, UNREACHABLE, chain};
use crate::templates::{self, Step};
use settings::{Config, Template};

pub(super) async fn check(pve: &Pve, config: &Config, answer: &mut Answer) {
    for template in &config.templates {
        let what = format!("making template {}", template.name);
        for line in storages(pve, template) {
            answer.say(Line { what: what.clone(), ..line }, FINDINGS);
        }
        let (places, _) = templates::places(template, &pve.seen);
        for host in template.hosts.iter().filter(|host| !pve.seen.hosts.contains_key(*host)) {
            answer
                .say(Line::wrong(what.clone(), format!("there is no host `{host}`")).key("hosts"), FINDINGS);
        }
        if places.is_empty() {
            let message = format!("no online host has the template's storage `{}`", template.storage);
            answer.say(Line::wrong(what, message).key("storage"), FINDINGS);
            continue;
        }
        match templates::look(&pve.client, &config.cluster, template, &pve.seen).await {
            Ok(found) => {
                for step in templates::steps(template, &config.cluster, &places, &found, false) {
                    answer.say(line(&what, template, &step), FINDINGS);
                }
            }
            Err(error) => answer.say(Line::wrong(what, chain(&error)), UNREACHABLE),
        }
    }
}

/// Returns a line for each storage that does not accept the content that the template needs. A storage that
/// the token cannot see is skipped: `image_storage` is needed only to create the template.
fn storages(pve: &Pve, template: &Template) -> Vec<Line> {
    let mut wrong = Vec::new();
    let kinds =
        [(&template.storage, "images", "storage"), (&template.image.storage, "import", "image_storage")];
    for (name, kind, key) in kinds {
        let Some(storage) = pve.storages.get(name) else { continue };
        if !storage.content.iter().any(|content| content == kind) {
            let message = format!("storage `{name}` does not accept the content type `{kind}`");
            let help = format!(
                "add the content type: `pvesm set {name} --content {},{kind}`",
                storage.content.join(",")
            );
            wrong.push(Line::wrong("", message).key(key).help(help));
        }
    }
    wrong
}

fn line(what: &str, template: &Template, step: &Step) -> Line {
    let run = format!("run `pve-autoscaler template {}`", template.name);
    let version = templates::version(template);
    match step {
        Step::Keep(vmid, host) => Line::good(
            what,
            format!(
                "VM {vmid} on {host} matches the template's description, version \
                {version}"
            ),
        ),
        Step::Make(host, _) => {
            Line::doubtful(what, format!("{host} has no template that matches the description")).help(run)
        }
        Step::Finish(vmid, host, _) | Step::Serve(vmid, host, _) => {
            Line::doubtful(what, format!("the template in VM {vmid} on {host} is not finished")).help(run)
        }
        Step::Aside(vmid, host, mark) => {
            let has = &mark.version;
            let message = format!(
                "machines are still cloned from VM {vmid} on {host}, which has version {has}, but the \
                    description has version {version}"
            );
            Line::doubtful(what, message).help(run)
        }
        Step::Destroy(vmid, host, mark) => {
            let help =
                format!("`pve-autoscaler template {}` destroys this VM if no clone needs it", template.name);
            let message = format!("VM {vmid} on {host} has version {}, which was replaced", mark.version);
            Line::good(what, message).help(help)
        }
        Step::Blocked(wrong, help) => Line::wrong(what, wrong.clone()).help(help.clone()),
    }
}
