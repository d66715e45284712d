//! Machines get the firewall settings of their pool before they start.

use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);

/// The pool with a firewall.
fn filtered() -> String {
    format!(
        "{ONE_POOL}[pool.security]\ngroups = [\"k8s-workers\", \"monitoring\"]\npolicy_out = \"reject\"\nip_filter = true\n"
    )
}

fn stage() -> Stage {
    let stage = Stage::new(&filtered());
    for group in ["k8s-workers", "monitoring"] {
        stage.pve.add_security_group(group);
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn a_machine_starts_with_its_groups_policies_and_own_addresses() {
    let mut stage = stage();
    // The template's firewall has a rule and addresses that are not the machine's.
    stage.pve.change_firewall_by_hand(9000, |firewall| {
        let rule = [("type", "in"), ("action", "ACCEPT"), ("enable", "1")];
        firewall.rules.push(rule.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        firewall.ip_sets.insert("ipfilter-net0".to_owned(), ["10.10.10.250".to_owned()].into());
    });
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = stage.vms(9100..=9109)[0];
    let firewall = stage.pve.firewall_of(vmid).unwrap();
    let option = |key: &str| firewall.options.get(key).map(String::as_str);
    assert_eq!((option("enable"), option("macfilter")), (Some("1"), Some("1")));
    assert_eq!((option("policy_in"), option("policy_out")), (Some("DROP"), Some("REJECT")));
    let rules: Vec<_> =
        firewall.rules.iter().map(|rule| (rule["action"].as_str(), rule["enable"].as_str())).collect();
    assert_eq!(rules, [("k8s-workers", "1"), ("monitoring", "1"), ("ACCEPT", "1")]);
    let address = stage.pve.config_of(vmid, "ipconfig0").unwrap();
    let own = firewall.ip_sets["ipfilter-net0"].iter().cloned().collect::<Vec<_>>();
    assert!(own.len() == 1 && address.starts_with(&format!("ip={}/", own[0])), "{own:?} {address}");
    assert!(stage.pve.config_of(vmid, "net0").unwrap().contains("firewall=1"));
    let calls = stage.pve.calls();
    let at = |end: &str| {
        calls.iter().position(|call| call.path.ends_with(end) && call.path.contains(&vmid.to_string()))
    };
    assert!(at("/firewall/rules") < at("/status/start"), "the VM has its rules before it starts");
    stage.kube.scale("default", "web", 0);
    stage.until("it goes", Duration::from_mins(40), |stage| stage.pve.vm(vmid).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn without_its_security_group_no_machine_starts() {
    let mut stage = Stage::new(&filtered());
    stage.pve.add_security_group("monitoring");
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    let said = |stage: &Stage| {
        stage
            .status()
            .decisions
            .iter()
            .any(|one| one.what.contains("the security group `k8s-workers` cannot be used"))
    };
    stage.until("it is said", Duration::from_mins(10), said).await;
    assert!(!stage.pve.calls().iter().any(|call| call.path.ends_with("/status/start")));
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
}
