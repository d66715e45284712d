//! Tests of how a machine is configured if its template has options of its own.

use super::*;
use settings::{Needs, parse};

const ADDRESSES: &str = "addresses = \"10.0.0.10-10.0.0.19\"\nprefix = 24\n";

fn pool(more: &str) -> Pool {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 2\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100-9109\"\n{ADDRESSES}{more}"
    );
    parse("c.toml", &text, Needs::Plan).unwrap_or_else(|report| panic!("{report}")).pools.remove(0)
}

fn record() -> Record {
    serde_json::from_value(serde_json::json!({
        "id": "m", "pool": "w", "name": "w-1", "slot": { "vmid": 9100, "address": "10.0.0.10" }, "host": "pve1", "template": 9000,
        "templateHost": "pve1", "cores": 2, "memory": 4_u64 << 30, "intent": { "kind": "create" }, "created": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

fn vm(options: &[(&str, &str)]) -> VmConfig {
    options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The VM's configuration once nothing is left to change.
fn configured(pool: &Pool, options: &[(&str, &str)]) -> VmConfig {
    let mut all: BTreeMap<String, String> =
        options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let rules = TagRules::free();
    for _ in 0..3 {
        let (change, is_last) = next(pool, &record(), &all.clone().into_iter().collect(), Some(&rules));
        for key in &change.delete {
            assert!(all.remove(key).is_some(), "{key} is removed, but was not set");
            assert!(!change.set.contains_key(key), "{key} is both set and removed");
        }
        all.extend(change.set);
        if is_last {
            let config: VmConfig = all.into_iter().collect();
            let again = next(pool, &record(), &config, Some(&rules));
            assert!(again.0.is_empty(), "changes are left after the last call: {again:?}");
            return config;
        }
    }
    panic!("changes are left after three calls");
}

#[test]
fn what_a_machine_must_not_have_is_removed() {
    for (option, value) in [
        ("protection", "1"),
        ("protection", "yes"),
        ("vcpus", "1"),
        ("vcpus", "4"),
        ("freeze", "1"),
        ("numa0", "cpus=0-1,memory=2048"),
        ("smp", "4"),
        ("startdate", "2020-01-01"),
        ("reboot", "0"),
        ("ipconfig1", "ip=10.1.0.5/24,gw=10.1.0.1"),
        ("ipconfig3", "ip6=fd00::5/64"),
        ("cicustom", "network=local:snippets/n.yml"),
    ] {
        assert_eq!(configured(&pool(""), &[(option, value)]).get(option), None, "{option}: {value}");
    }
}

#[test]
fn what_does_no_harm_stays() {
    for (option, value) in [
        ("ipconfig1", "ip=dhcp,ip6=auto"),
        ("cicustom", "vendor=local:snippets/v.yml"),
        ("cicustom", "user=local:snippets/u.yml"),
        ("sshkeys", "ssh-ed25519%20AAAA%20template"),
        ("ciuser", "debian"),
        ("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr7,link_down=1"),
        ("protection", "0"),
        ("affinity", "0-3"),
        ("hookscript", "local:snippets/hook.pl"),
    ] {
        assert_eq!(configured(&pool(""), &[(option, value)]).get(option), Some(value), "{option}: {value}");
    }
}

#[test]
fn of_what_is_partly_harmful_the_rest_stays() {
    for (option, value, expected) in [
        ("ipconfig1", "ip=10.1.0.5/24,gw=10.1.0.1,ip6=auto", "ip6=auto"),
        ("ipconfig1", "ip=dhcp,ip6=fd00::5/64,gw6=fd00::1", "ip=dhcp"),
        (
            "cicustom",
            "network=local:snippets/n.yml,vendor=local:snippets/v.yml",
            "vendor=local:snippets/v.yml",
        ),
        (
            "net0",
            "virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=on",
            "virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=0",
        ),
    ] {
        assert_eq!(
            configured(&pool(""), &[(option, value)]).get(option),
            Some(expected),
            "{option}: {value}"
        );
    }
}

#[test]
fn a_network_of_the_templates_own_stays_where_the_pool_gives_no_addresses() {
    let text = "[[pool]]\nname = \"w\"\nmax = 2\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100-9109\"\naddresses = \"dhcp\"\n";
    let pool = parse("c.toml", text, Needs::Plan).unwrap().pools.remove(0);
    let own = ("cicustom", "network=local:snippets/n.yml");
    assert_eq!(configured(&pool, &[own]).get("cicustom"), Some(own.1));
}

#[test]
fn protection_goes_before_a_drive_that_it_would_keep() {
    let seed =
        "[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"local\"\nuser_data = \"#cloud-config\\n\"\n";
    let template = [("protection", "1"), ("ide0", "local:9100/vm-9100-cloudinit.qcow2,media=cdrom")];
    let (first, is_last) = next(&pool(seed), &record(), &vm(&template), None);
    assert_eq!((first.delete, first.set.len(), is_last), (vec!["protection".to_owned()], 0, false));
    assert_eq!(configured(&pool(seed), &template).get("ide0"), None);
}

#[test]
fn the_pools_keys_win_and_are_written_once() {
    let one = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB one";
    let two = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIC two";
    let keys = format!("user = \"k8s\"\nssh_keys = [\"{one}\", \"{two}\"]\n");
    let written = |text: &str| {
        let text = text.replace(' ', "%20").replace('\n', "%0A");
        next(&pool(&keys), &record(), &vm(&[("sshkeys", &text)]), None).0.set.get("sshkeys").cloned()
    };
    let both = format!("{one}\n{two}");
    assert_eq!(written("ssh-ed25519 CCCC template"), Some(both.clone()));
    assert_eq!(written(one), Some(both.clone()));
    assert_eq!(written(&format!("{both}\n")), None);
}

#[test]
fn machines_have_tags_of_the_pool_and_those_of_the_template_that_cannot_be_removed() {
    let pool = pool("tags = [\"k8s\"]\n");
    let tags = |rules: Option<&TagRules>| {
        next(&pool, &record(), &vm(&[("tags", "template;prod")]), rules).0.set["tags"].clone()
    };
    assert_eq!(tags(Some(&TagRules::free())), "k8s;pve-autoscaler");
    assert_eq!(tags(Some(&TagRules::with_registered("prod"))), "k8s;prod;pve-autoscaler");
    assert_eq!(tags(None), "k8s;prod;pve-autoscaler;template");
}

#[test]
fn the_size_is_the_machines_whatever_the_template_says() {
    let config = configured(
        &pool(""),
        &[("sockets", "2"), ("cores", "4"), ("memory", "current=512"), ("balloon", "256")],
    );
    let size = ["sockets", "cores", "memory", "balloon"].map(|key| config.get(key).unwrap_or_default());
    assert_eq!(size, ["1", "2", "4096", "0"]);
    // If `sockets` is not set, the older `smp` applies.
    assert_eq!(configured(&pool(""), &[("smp", "2")]).get("sockets"), Some("1"));
    let grown = pool("[pool.grow]\nmax_cores = 4\n");
    let config = configured(&grown, &[("vcpus", "1"), ("cores", "1")]);
    assert_eq!((config.get("vcpus"), config.get("cores")), (Some("2"), Some("4")));
}

#[test]
fn memory_that_the_helper_has_divided_stays_divided() {
    let pinned = pool("[pool.pinning]\ncpus = \"dedicated\"\nnuma = true\n");
    let own = ("numa0", "cpus=0-1,hostnodes=0,memory=4096,policy=bind");
    assert_eq!(configured(&pinned, &[own]).get("numa0"), Some(own.1));
}
