//! `[pool.kubelet]`: fields of the kubelet's own configuration (`KubeletConfiguration` of
//! `kubelet.config.k8s.io/v1beta1`). kubeadm applies them on top of the cluster's configuration when a
//! machine joins.
//!
//! Any field may be set. The checks cover fields that the daemon's decisions depend on, fields that are set
//! elsewhere, and names that look mistyped. A kubelet does not start if it does not know a field.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use toml::Spanned;

use super::Written;
use crate::values::Checker;
use model::quantity;

/// The kubelet's default eviction threshold for memory (`memory.available<100Mi`).
const DEFAULT_EVICTION: i64 = 100 << 20;
/// Maximum size of the table in bytes. The table is passed to the guest as a command-line argument.
const LONGEST: usize = 8 << 10;
/// Maximum length of the settings in a record, in bytes. Longer settings are recorded as a digest.
const WORDS: usize = 400;

/// Fields that the daemon or kubeadm sets, each with what to do instead.
const SET_ALREADY: [(&str, &str); 9] = [
    ("apiVersion", "remove this field: `[pool.kubelet]` does not need it"),
    ("containerRuntimeEndpoint", "remove this field: kubeadm detects the container runtime"),
    ("kind", "remove this field: `[pool.kubelet]` does not need it"),
    ("maxPods", "use the pool's `max_pods`"),
    ("podCIDR", "remove this field: the cluster assigns a pod CIDR to each node"),
    ("providerID", "use the pool's `provider_id`"),
    ("registerNode", "remove this field: a machine always registers as a node"),
    ("registerWithTaints", "use the pool's `taints` and `startup_taints`"),
    ("rotateCertificates", "remove this field: kubeadm sets it"),
];

/// Commonly used fields of Kubernetes 1.37. A field whose name is similar to one of them is reported as
/// mistyped.
const KNOWN: [&str; 44] = [
    "allowedUnsafeSysctls",
    "clusterDNS",
    "clusterDomain",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "crashLoopBackOff",
    "enforceNodeAllocatable",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failSwapOn",
    "featureGates",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "kubeReserved",
    "kubeReservedCgroup",
    "maxParallelImagePulls",
    "memoryManagerPolicy",
    "memorySwap",
    "mergeDefaultEvictionSettings",
    "nodeStatusMaxImages",
    "podPidsLimit",
    "protectKernelDefaults",
    "registryBurst",
    "registryPullQPS",
    "reservedMemory",
    "reservedSystemCPUs",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "systemReserved",
    "topologyManagerPolicy",
    "topologyManagerScope",
];

/// Fields whose kubelet argument differs from the name that [`kebab`] returns (`AddKubeletConfigFlags` of
/// `cmd/kubelet/app/options`).
const NAMED_OTHERWISE: [(&str, &str); 15] = [
    ("contentType", "kube-api-content-type"),
    ("enableContentionProfiling", "contention-profiling"),
    ("eventRecordQPS", "event-qps"),
    ("imageGCHighThresholdPercent", "image-gc-high-threshold"),
    ("imageGCLowThresholdPercent", "image-gc-low-threshold"),
    ("imageMinimumGCAge", "minimum-image-ttl-duration"),
    ("kubeAPIQPS", "kube-api-qps"),
    ("makeIPTablesUtilChains", "make-iptables-util-chains"),
    ("podPidsLimit", "pod-max-pids"),
    ("registryPullQPS", "registry-qps"),
    ("reservedSystemCPUs", "reserved-cpus"),
    ("serverTLSBootstrap", "rotate-server-certificates"),
    ("staticPodPath", "pod-manifest-path"),
    ("staticPodURL", "manifest-url"),
    ("staticPodURLHeader", "manifest-url-header"),
];

/// The tables that specify how much of each resource a kubelet reserves.
const RESERVED: [&str; 2] = ["kubeReserved", "systemReserved"];

/// A checked `[pool.kubelet]`. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletSettings(Arc<Map<String, Value>>);

impl KubeletSettings {
    /// Returns the fields as one line of JSON, to be applied on top of the cluster's configuration; `None` if
    /// no fields are set.
    pub fn patch(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| Value::Object((*self.0).clone()).to_string())
    }

    /// The fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns the settings in the form that a record contains: JSON, or a digest if the JSON is too long;
    /// empty if no fields are set.
    pub fn words(&self) -> String {
        match self.patch() {
            Some(text) if text.len() > WORDS => super::fingerprint::digest(&[text]),
            Some(text) => text,
            None => String::new(),
        }
    }

    /// Returns the CPU that a kubelet with these settings reserves, in thousandths of a core
    /// (`getNodeAllocatableReservation` of `pkg/kubelet/cm`). Reservations in the cluster's own configuration
    /// are not included.
    pub fn kept_cpu(&self) -> i64 {
        if let Some(list) = self.0.get("reservedSystemCPUs").and_then(Value::as_str) {
            return cpus(list).unwrap_or_default().saturating_mul(1000);
        }
        self.reserved("cpu", quantity::limited_milli)
    }

    /// Returns the memory in bytes that a kubelet with these settings reserves, including its eviction
    /// threshold. `capacity` is the memory of the node.
    pub fn kept_memory(&self, capacity: i64) -> i64 {
        let merged = self.0.get("mergeDefaultEvictionSettings") == Some(&Value::Bool(true));
        let eviction = match self.0.get("evictionHard") {
            None => DEFAULT_EVICTION,
            // With `evictionHard`, the default threshold applies only if `mergeDefaultEvictionSettings` is
            // true.
            Some(table) => match table.get("memory.available").and_then(Value::as_str) {
                Some(text) => threshold(text, capacity).unwrap_or_default(),
                None if merged => DEFAULT_EVICTION,
                None => 0,
            },
        };
        self.reserved("memory", quantity::limited).saturating_add(eviction)
    }

    fn reserved<E>(&self, resource: &str, read: fn(&str) -> Result<i64, E>) -> i64 {
        let amount =
            |table: &str| self.0.get(table)?.get(resource)?.as_str().and_then(|text| read(text).ok());
        RESERVED.iter().filter_map(|table| amount(table)).fold(0, i64::saturating_add)
    }
}

/// Parses a quantity, or a percentage of the capacity such as `5%`.
fn threshold(text: &str, capacity: i64) -> Option<i64> {
    let Some(percent) = text.strip_suffix('%') else { return quantity::limited(text).ok() };
    let percent: u32 = percent.parse().ok().filter(|percent| *percent <= 100)?;
    Some(capacity / 100 * i64::from(percent))
}

/// The number of CPUs in a list such as `0-1,4`.
fn cpus(list: &str) -> Option<i64> {
    list.split(',').try_fold(0, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i64, i64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (0 <= first && first <= last).then_some(())?;
        (last - first).checked_add(1)?.checked_add(sum)
    })
}

pub(super) fn check(pool: &Written, memory: i64, checker: &mut Checker) -> KubeletSettings {
    let Some(table) = &pool.kubelet else { return KubeletSettings::default() };
    let before = checker.findings.len();
    let mut fields = Map::new();
    for (key, value) in table.get_ref() {
        let look = Look { pool: pool.name.get_ref(), key, value };
        look.name(pool, checker);
        match key.get_ref().as_str() {
            "kubeReserved" | "systemReserved" => look.reserved(checker),
            "evictionHard" | "evictionSoft" => look.thresholds(checker),
            "reservedSystemCPUs" if value.get_ref().as_str().and_then(cpus).is_none() => {
                let title = format!("pool `{}`: `reservedSystemCPUs` is not a list of CPUs", look.pool);
                checker.wrong(title, value.span(), "expected e.g. \"0-1,4\"", "");
            }
            _ => {}
        }
        fields.insert(key.get_ref().clone(), json(value.get_ref()));
    }
    let settings = KubeletSettings(Arc::new(fields));
    let title = |what: &str| format!("pool `{}`: {what}", pool.name.get_ref());
    if settings.patch().is_some_and(|text| text.len() > LONGEST) {
        checker.wrong(title("`[pool.kubelet]` is too long"), table.span(), "at most 8 KiB", "");
    }
    // An invalid amount has already been reported.
    if checker.findings.len() == before {
        if settings.kept_cpu() >= i64::from(*pool.cores.get_ref()) * 1000 {
            let title = title("each kubelet would reserve all of its machine's CPUs");
            checker.clash(title, table.span(), "nothing would be left for pods", pool.cores.span(), "");
        }
        if settings.kept_memory(memory) >= memory {
            let title = title("each kubelet would reserve all of its machine's memory");
            checker.clash(title, table.span(), "nothing would be left for pods", pool.memory.span(), "");
        }
    }
    settings
}

/// Reports that `[pool.kubelet]` has no effect with this bootstrap method.
pub(super) fn unused(pool: &Written, method: &str, checker: &mut Checker) {
    let Some(table) = &pool.kubelet else { return };
    let name = pool.name.get_ref();
    let title = format!(
        "pool `{name}`: `[pool.kubelet]` has no effect with `method = \"{method}\"` in `[bootstrap]`"
    );
    let help = "only kubeadm applies this table: configure the template's kubelet, or use `kubelet_args`";
    checker.wrong(title, table.span(), "not used", help);
}

/// The field that is being checked.
struct Look<'a> {
    pool: &'a str,
    key: &'a Spanned<String>,
    value: &'a Spanned<toml::Value>,
}

impl Look<'_> {
    fn name(&self, pool: &Written, checker: &mut Checker) {
        let (name, key) = (self.pool, self.key.get_ref());
        if let Some((_, help)) = SET_ALREADY.into_iter().find(|(known, _)| known == key) {
            let title = format!("pool `{name}`: `kubelet.{key}` is already set");
            return checker.wrong(title, self.key.span(), "set elsewhere", help);
        }
        let argument = argument(key);
        if let Some((other, _)) = pool.kubelet_args.iter().find(|(other, _)| *other.get_ref() == argument) {
            let title = format!("pool `{name}`: `kubelet.{key}` is also set by `kubelet_args`");
            return checker.clash(
                title,
                self.key.span(),
                "the argument takes precedence",
                other.span(),
                "remove one of them",
            );
        }
        if KNOWN.contains(&key.as_str()) {
            return;
        }
        let like = |known: &&&str| {
            known.eq_ignore_ascii_case(key)
                || kebab(known) == key.replace('_', "-")
                || strsim::jaro_winkler(known, key) > 0.95
        };
        if let Some(known) = KNOWN.iter().find(like) {
            let title = format!("pool `{name}`: `{key}` is not a kubelet configuration field");
            checker.wrong(title, self.key.span(), "unknown", &format!("did you mean `{known}`?"));
        }
    }

    fn table(&self, checker: &mut Checker) -> Option<&toml::Table> {
        let table = self.value.get_ref().as_table();
        if table.is_none() {
            let title = format!("pool `{}`: `kubelet.{}` is not a table", self.pool, self.key.get_ref());
            checker.wrong(title, self.value.span(), "expected e.g. { memory = \"500Mi\" }", "");
        }
        table
    }

    /// Reports an invalid amount in a table.
    fn amount(&self, key: &str, label: &str, checker: &mut Checker) {
        let title =
            format!("pool `{}`: `{key}` in `kubelet.{}` is not an amount", self.pool, self.key.get_ref());
        checker.wrong(title, self.value.span(), label, "");
    }

    fn reserved(&self, checker: &mut Checker) {
        for (resource, amount) in self.table(checker).into_iter().flatten() {
            let read = match (resource.as_str(), amount.as_str()) {
                ("cpu", Some(text)) => quantity::limited_milli(text).ok(),
                ("memory" | "ephemeral-storage" | "pid", Some(text)) => quantity::limited(text).ok(),
                _ => None,
            };
            if read.is_none_or(|amount| amount < 0) {
                let label = "expected cpu, memory, ephemeral-storage or pid, e.g. { cpu = \"200m\", memory = \"500Mi\" }";
                self.amount(resource, label, checker);
            }
        }
    }

    fn thresholds(&self, checker: &mut Checker) {
        for (signal, amount) in self.table(checker).into_iter().flatten() {
            let read = amount.as_str().and_then(|text| threshold(text, i64::MAX));
            if read.is_none_or(|amount| amount < 0) {
                self.amount(
                    signal,
                    "expected e.g. { \"memory.available\" = \"200Mi\", \"nodefs.available\" = \"10%\" }",
                    checker,
                );
            }
        }
    }
}

/// The kubelet argument that sets a field, if there is one.
fn argument(field: &str) -> String {
    let named = NAMED_OTHERWISE.iter().find(|(known, _)| *known == field);
    named.map_or_else(|| kebab(field), |(_, argument)| (*argument).to_owned())
}

/// Returns a field's name as words joined by hyphens. An abbreviation is one word, even in the plural:
/// `cpuCFSQuota` becomes `cpu-cfs-quota`, and `reservedSystemCPUs` becomes `reserved-system-cpus`.
fn kebab(field: &str) -> String {
    let letters: Vec<char> = field.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let ends_abbreviation =
            letters.get(at + 1).is_some_and(char::is_ascii_lowercase) && letters[at + 1..] != ['s'];
        let begins = at > 0 && (letters[at - 1].is_ascii_lowercase() || ends_abbreviation);
        if begins && letter.is_ascii_uppercase() {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(truth) => Value::from(*truth),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(list) => list.iter().map(json).collect(),
        toml::Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
    }
}

/// A `[pool.kubelet]` as written in the configuration file.
pub(super) type Fields = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[cfg(test)]
mod tests {
    use crate::{KubeletSettings, Needs, parse};

    fn written(more: &str) -> Result<KubeletSettings, String> {
        let text = format!("[[pool]]\nname = \"w\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n{more}");
        let parsed = parse("c.toml", &text, Needs::Plan);
        parsed.map(|config| config.pools[0].kubelet.clone()).map_err(|report| report.to_string())
    }

    #[test]
    fn amounts_beyond_any_machine_are_refused() {
        for (more, expected) in [
            (
                "[pool.kubelet]\nkubeReserved = { memory = \"6Ei\" }\nsystemReserved = { memory = \"6Ei\" }\n",
                "memory",
            ),
            ("[pool.kubelet]\nkubeReserved = { cpu = \"9P\" }\nsystemReserved = { cpu = \"9P\" }\n", "CPU"),
            ("[pool.kubelet]\nreservedSystemCPUs = \"0-9223372036854775807\"\n", "is not a list of CPUs"),
            ("[pool.kubelet]\nreservedSystemCPUs = \"0-9223372036854775000\"\n", "CPU"),
        ] {
            let report = written(more).unwrap_err();
            assert!(report.contains(expected), "{report}");
        }
    }

    #[test]
    fn fields_become_one_line_of_json_and_what_they_keep_is_known() {
        const MIB: i64 = 1 << 20;
        let cases = [
            ("", None, 0, 100 * MIB),
            (
                "[pool.kubelet]\nshutdownGracePeriod = \"30s\"\npodPidsLimit = 4096\nserverTLSBootstrap = true\n",
                Some(r#"{"podPidsLimit":4096,"serverTLSBootstrap":true,"shutdownGracePeriod":"30s"}"#),
                0,
                100 * MIB,
            ),
            (
                "[pool.kubelet]\nsystemReserved = { cpu = \"200m\", memory = \"500Mi\" }\nkubeReserved = { cpu = \"0.1\", memory = \"1Gi\" }\n",
                Some(
                    r#"{"kubeReserved":{"cpu":"0.1","memory":"1Gi"},"systemReserved":{"cpu":"200m","memory":"500Mi"}}"#,
                ),
                300,
                1624 * MIB,
            ),
            (
                "[pool.kubelet.evictionHard]\n\"memory.available\" = \"5%\"\n",
                Some(r#"{"evictionHard":{"memory.available":"5%"}}"#),
                0,
                (8 << 30) / 100 * 5,
            ),
            (
                "[pool.kubelet]\nevictionHard = { \"nodefs.available\" = \"5%\" }\nreservedSystemCPUs = \"0-1,3\"\nsystemReserved = { cpu = \"1\" }\n",
                Some(
                    r#"{"evictionHard":{"nodefs.available":"5%"},"reservedSystemCPUs":"0-1,3","systemReserved":{"cpu":"1"}}"#,
                ),
                3000,
                0,
            ),
            (
                "[pool.kubelet]\nevictionHard = { \"nodefs.available\" = \"5%\" }\nmergeDefaultEvictionSettings = true\n",
                Some(r#"{"evictionHard":{"nodefs.available":"5%"},"mergeDefaultEvictionSettings":true}"#),
                0,
                100 * MIB,
            ),
        ];
        for (text, patch, cpu, memory) in cases {
            let settings = written(text).unwrap();
            assert_eq!(settings.patch().as_deref(), patch, "{text}");
            assert_eq!((settings.kept_cpu(), settings.kept_memory(8 << 30)), (cpu, memory), "{text}");
        }
        assert!(written("[pool.kubelet]\naFieldOfNextYear = { a = [1, 2.5] }\n").is_ok());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_way_out() {
        for (text, expected) in [
            ("maxPods = 50", &["`kubelet.maxPods` is already set", "use the pool's `max_pods`"][..]),
            ("registerWithTaints = []", &["`taints` and `startup_taints`"]),
            (
                "systemreserved = {}",
                &["`systemreserved` is not a kubelet configuration field", "did you mean `systemReserved`?"],
            ),
            ("eviction_hard = {}", &["did you mean `evictionHard`?"]),
            ("cpu_cfs_quota = true", &["did you mean `cpuCFSQuota`?"]),
            ("reserved_system_cpus = \"0\"", &["did you mean `reservedSystemCPUs`?"]),
            ("shutdownGracePerod = \"5s\"", &["did you mean `shutdownGracePeriod`?"]),
            ("systemReserved = \"1Gi\"", &["`kubelet.systemReserved` is not a table"]),
            (
                "systemReserved = { memory = \"1 GB\" }",
                &["`memory` in `kubelet.systemReserved` is not an amount"],
            ),
            ("kubeReserved = { cpu = 1 }", &["`cpu` in `kubelet.kubeReserved` is not"]),
            ("kubeReserved = { gpu = \"1\" }", &["`gpu` in `kubelet.kube", "ephemeral-storage or pid"]),
            ("evictionHard = { \"memory.available\" = \"101%\" }", &["`memory.available` in `kubelet.e"]),
            ("reservedSystemCPUs = \"1-0\"", &["is not a list of CPUs"]),
            (
                "systemReserved = { cpu = \"4\" }",
                &["each kubelet would reserve all of its machine's CPUs", "because of this"],
            ),
            (
                "systemReserved = { memory = \"8100Mi\" }",
                &["each kubelet would reserve all of its machine's memory"],
            ),
        ] {
            let report = written(&format!("[pool.kubelet]\n{text}\n")).unwrap_err();
            for one in expected {
                assert!(report.contains(one), "{text}: no {one:?} in\n{report}");
            }
        }
    }

    #[test]
    fn a_field_that_an_argument_also_sets_is_refused() {
        for (argument, field) in [
            ("system-reserved", "systemReserved = { cpu = \"1\" }"),
            ("cpu-cfs-quota", "cpuCFSQuota = false"),
            ("cpu-cfs-quota-period", "cpuCFSQuotaPeriod = \"10ms\""),
            ("reserved-cpus", "reservedSystemCPUs = \"0\""),
            ("image-gc-high-threshold", "imageGCHighThresholdPercent = 80"),
            ("minimum-image-ttl-duration", "imageMinimumGCAge = \"1h\""),
            ("pod-max-pids", "podPidsLimit = 4096"),
            ("registry-qps", "registryPullQPS = 10"),
            ("kube-api-qps", "kubeAPIQPS = 50"),
            ("rotate-server-certificates", "serverTLSBootstrap = true"),
            ("cluster-dns", "clusterDNS = [\"10.96.0.10\"]"),
            ("tls-min-version", "tlsMinVersion = \"VersionTLS13\""),
            ("cgroups-per-qos", "cgroupsPerQOS = true"),
        ] {
            let report =
                written(&format!("kubelet_args = {{ {argument} = \"x\" }}\n[pool.kubelet]\n{field}\n"));
            let report = report.unwrap_err();
            assert!(report.contains("is also set by `kubelet_args`"), "{argument}\n{report}");
        }
    }
}
