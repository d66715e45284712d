//! Generates docs/concepts/compare.md, which compares what each autoscaler for Proxmox VE does, from
//! `compare.toml` beside this file. A row that names a missing test is an error.

use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;

use super::folder;

const HEAD: &str = "\
# Compared with the other autoscalers for Proxmox VE

Based on the source code as of summer 2026: kproximate 0.3.1, proxmox-autoscaler (Python, January 2023), KubeNodeSmith (January 2026),
karpenter-provider-proxmox 0.12. The code was read, not run. ✔ yes · ◐ partly · ✘ no. Each ✔ of pve-autoscaler links to the test that proves
it. How to migrate: [coming from another autoscaler](../guides/migration.md).
";

/// Autoscalers that are too young or too limited for a column of their own.
const OTHERS: &str = "
## Others

Based on the source code as of summer 2026. The code was read, not run.

| | What it is | Here |
|---|---|---|
| [algo7/karpenter-provider-pve](https://github.com/algo7/karpenter-provider-pve) | Karpenter for RKE2 and K3s, with templates built by Packer. Calls that create or remove machines still return \"not implemented\" | `method = \"k3s\"` or `\"command\"` ([joining](../guides/bootstrap.md)), `[[template]]` |
| [shokohsc/karpenter-provider-proxmox](https://github.com/shokohsc/karpenter-provider-proxmox) | a fork of karpenter-provider-proxmox whose machines boot Talos from the network (`bootMethod: pxe`) | `migrate karpenter` reads its files; `boot = \"network\"` ([network boot](../guides/network-boot.md)) |
| [shokohsc/talos-proxmox-autoscaler](https://github.com/shokohsc/talos-proxmox-autoscaler) | Talos workers that boot from the network: every 30 s it sums up what pending pods request, and creates machines whose size is between a minimum and a maximum. It removes nodes that the descheduler has labelled | `boot = \"network\"` and `sizes`; `min_workers` and `max_workers` are `min` and `max` |
| [Pzharyuk/proxmox-autoscaler](https://github.com/Pzharyuk/proxmox-autoscaler) | Talos workers; adds one if pods have lacked CPU or memory for 30 s, and removes nodes whose measured usage has been below a threshold for five minutes | `[[pool]]`; `SCALE_DOWN_UTILIZATION_PCT` refers to measured usage, `utilization_threshold` to what pods request |
| [vgstdev/proxmox-autoscaler](https://github.com/vgstdev/proxmox-autoscaler) | resizes containers (LXC) of a Proxmox host; no Kubernetes nodes | – |
";

#[derive(Deserialize)]
struct Comparison {
    group: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    title: String,
    rows: Vec<(String, String, String, String, String)>,
}

fn sign(letter: char) -> &'static str {
    match letter {
        '+' => "✔",
        '~' => "◐",
        '-' => "✘",
        '.' => "–",
        other => panic!("{other:?} is not one of the signs"),
    }
}

/// Returns the page. Panics if a row names a test that does not exist, or has a ✔ without a test.
pub fn page(source: &str) -> String {
    let comparison: Comparison = toml::from_str(source).unwrap();
    let mut page = HEAD.to_owned();
    for group in comparison.group {
        let title = group.title;
        writeln!(page, "\n## {title}\n").unwrap();
        page.push_str(
            "| | kproximate | proxmox-autoscaler | KubeNodeSmith | karpenter | pve-autoscaler | |\n",
        );
        page.push_str("|---|---|---|---|---|---|---|\n");
        for (about, peers, ours, how, test) in group.rows {
            assert_eq!((peers.chars().count(), ours.chars().count()), (4, 1), "{about}");
            let peers: Vec<&str> = peers.chars().map(sign).collect();
            let ours = ours.chars().map(sign).collect::<String>();
            assert!(!test.is_empty() || ours != "✔", "nothing proves {about:?}");
            let proof = if test.is_empty() { String::new() } else { proof(&about, &test) };
            let last =
                [how, proof].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
            writeln!(page, "| {about} | {} | {ours} | {last} |", peers.join(" | ")).unwrap();
        }
    }
    page.push_str(OTHERS);
    page
}

/// A link to the test.
fn proof(about: &str, test: &str) -> String {
    let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{about:?} names no test: {test}"));
    let text = fs::read_to_string(folder(file)).unwrap_or_else(|error| panic!("{about:?}: {file}: {error}"));
    let line = text.lines().position(|line| line.contains(&format!("fn {name}(")));
    assert!(line.is_some(), "{about:?}: {file} has no test {name}");
    format!("[test](../../{file})")
}
