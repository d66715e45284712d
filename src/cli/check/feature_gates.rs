//! Feature gates that keep a kubelet from starting: gates that a release has removed, and gates that it has
//! locked to a value other than the pool's.

use super::findings::Line;
use settings::Pool;

/// The gates that kubelets no longer accept, by the first minor version of Kubernetes 1 that rejects them
/// (source: the constants in `pkg/features` and in the packages that add gates to it).
const GONE: [(u32, &str); 5] = [
    (
        33,
        "APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor AppArmorFields CPUManager \
         DisableCloudProviders DisableKubeletCloudCredentialProviders EfficientWatchResumption JobPodFailurePolicy \
         KubeProxyDrainingTerminatingNodes PDBUnhealthyPodEvictionPolicy PersistentVolumeLastPhaseTransitionTime \
         RemainingItemCount VolumeCapacityPriority WatchBookmark",
    ),
    (
        34,
        "DevicePluginCDIDevices ElasticIndexedJob LegacySidecarContainers PodDisruptionConditions StatefulSetStartOrdinal",
    ),
    (
        35,
        "AllowServiceLBStatusOnNonLB ComponentSLIs CronJobsScheduledAnnotation LoadBalancerIPMode PodIndexLabel \
         ProbeHostPodSecurityStandards SizeMemoryBackedVolumes StatefulSetAutoDeletePVC StrictCostEnforcementForVAP \
         StrictCostEnforcementForWebhooks UserNamespacesPodSecurityStandards",
    ),
    (
        36,
        "CSIMigrationPortworx HonorPVReclaimPolicy InPlacePodVerticalScalingAllocatedStatus InTreePluginPortworxUnregister \
         MemoryManager ServiceTrafficDistribution StructuredAuthorizationConfiguration TopologyAwareHints \
         WatchFromStorageWithoutResourceVersion",
    ),
    (
        37,
        "APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors \
         AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache GangScheduling JobBackoffLimitPerIndex \
         JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown OrderedNamespaceDeletion PodLifecycleSleepAction \
         PodLifecycleSleepActionAllowZero PreventStaticPodAPIReferences RelaxedDNSSearchValidation \
         ResilientWatchCacheInitialization RetryGenerateName SchedulerQueueingHints SidecarContainers \
         StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration \
         WorkloadAwarePreemption",
    ),
];

/// The gates that are locked to a single value, by the first minor version of Kubernetes 1 that locks them
/// (source: `LockToDefault` of a kubelet's gates).
const LOCKED: [(u32, bool, &str); 11] = [
    (30, true, "PodSchedulingReadiness"),
    (31, true, "LogarithmicScaleDown"),
    (
        32,
        true,
        "CustomResourceFieldSelectors RetryGenerateName ServiceAccountTokenJTI ServiceAccountTokenNodeBindingValidation \
         ServiceAccountTokenPodNodeInfo TopologyManagerPolicyOptions",
    ),
    (
        33,
        true,
        "AnyVolumeDataSource BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting JobBackoffLimitPerIndex \
         JobSuccessPolicy MatchLabelKeysInPodAffinity NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread \
         RecursiveReadOnlyMounts ServiceAccountTokenNodeBinding SidecarContainers",
    ),
    (
        34,
        true,
        "APIServerTracing AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors AuthorizeWithSelectors \
         ConsistentListFromCache JobPodReplacementPolicy KubeletCgroupDriverFromCRI KubeletTracing MultiCIDRServiceAllocator \
         NodeSwap OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero \
         RecoverVolumeExpansionFailure RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation \
         ResilientWatchCacheInitialization SchedulerQueueingHints SeparateTaintEvictionController \
         StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration WinDSR \
         WinOverlay",
    ),
    (35, false, "AllowOverwriteTerminationGracePeriodSeconds"),
    (
        35,
        true,
        "AggregatedDiscoveryRemoveBetaType DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout \
         ImageMaximumGCAge InPlacePodVerticalScaling JobManagedBy PodObservedGenerationTracking \
         PreferSameTrafficDistribution SupplementalGroupsPolicy SystemdWatchdog",
    ),
    (36, false, "GitRepoVolumeDriver SeparateCacheWatchRPC"),
    (
        36,
        true,
        "CSIServiceAccountTokenSecrets DRAAdminAccess DeclarativeValidation DisableNodeKubeProxyVersion \
         ExternalServiceAccountTokenSigner ImageVolume InOrderInformers KubeletFineGrainedAuthz KubeletPSI \
         KubeletPodResourcesDynamicResources KubeletPodResourcesGet MutableCSINodeAllocatableCount NodeLogQuery \
         ProcMountType SELinuxChangePolicy SELinuxMountReadWriteOncePod UserNamespacesSupport VolumeAttributesClass",
    ),
    (37, false, "DeclarativeValidationTakeover"),
    (
        37,
        true,
        "DRAExtendedResource DRAPrioritizedList DRAResourceClaimDeviceStatus DisableCPUQuotaWithExclusiveCPUs \
         HPAConfigurableTolerance HostnameOverride InPlacePodVerticalScalingInitContainers NodeDeclaredFeatures \
         PLEGOnDemandRelist PodReadyToStartContainersCondition RelaxedServiceNameValidation \
         WatchCacheInitializationPostStartHook",
    ),
];

/// Checks the feature gates that a pool sets in `kubelet_args` or in `kubelet`.
pub(super) fn unfit(pool: &Pool, minor: u32) -> Vec<Line> {
    let argument = pool.kubelet_args.get("feature-gates").map_or("", String::as_str);
    let arguments = argument.split(',').filter_map(|gate| gate.split_once('='));
    let arguments = arguments.map(|(name, value)| ("kubelet_args", name.trim(), is_on(value.trim())));
    let fields = pool.kubelet.fields().get("featureGates").and_then(|gates| gates.as_object());
    let fields = fields.into_iter().flatten();
    let fields = fields.map(|(name, value)| ("kubelet", name.as_str(), value.as_bool()));
    let line = |(key, name, value)| {
        let line = judge(name, value, minor)?;
        Some(line.of(&pool.name).key(key))
    };
    arguments.chain(fields).filter_map(line).collect()
}

/// Parses a value as the kubelet does (Go's `ParseBool`). Returns `None` for other values, which are not
/// judged here.
fn is_on(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn judge(name: &str, value: Option<bool>, minor: u32) -> Option<Line> {
    let what = "  kubelet feature gates";
    let holds = |names: &str| names.split(' ').any(|one| one == name);
    let gone = GONE.iter().find(|(_, names)| holds(names)).map(|(since, _)| *since);
    let locked = LOCKED.iter().find(|(_, to, names)| value.is_some_and(|value| value != *to) && holds(names));
    let (line, help) = match (gone, locked) {
        (Some(since), _) if since <= minor => {
            let message = format!(
                "`{name}` was removed: a kubelet of Kubernetes 1.{since} or newer does not start with it"
            );
            (Line::wrong(what, message), "remove the feature gate")
        }
        (_, Some((since, to, _))) if *since <= minor => {
            let message = format!(
                "`{name}` is locked to {to} since Kubernetes 1.{since}: a kubelet does not start with a \
                    different value"
            );
            (Line::wrong(what, message), "remove the feature gate")
        }
        (Some(since), _) => {
            let message = format!("`{name}` is removed in Kubernetes 1.{since}; this cluster has 1.{minor}");
            (Line::doubtful(what, message), "remove the feature gate before the upgrade")
        }
        (None, Some((since, to, _))) => {
            let message = format!(
                "`{name}` is locked to {to} from Kubernetes 1.{since} on; this cluster has 1.{minor}"
            );
            (Line::doubtful(what, message), "remove the feature gate before the upgrade")
        }
        (None, None) => return None,
    };
    Some(line.help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_each_once() {
        let gone = GONE.iter().map(|one| one.1);
        for names in gone.chain(LOCKED.iter().map(|one| one.2)) {
            let names: Vec<&str> = names.split(' ').collect();
            assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        }
        let mut all: Vec<&str> = GONE.iter().flat_map(|one| one.1.split(' ')).collect();
        all.sort_unstable();
        assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    }

    #[test]
    fn a_gate_is_told_by_its_name_its_value_and_the_version() {
        let said =
            |name: &str, value: bool, minor: u32| judge(name, Some(value), minor).map(|line| line.message);
        for (name, value, minor, words) in [
            ("SidecarContainers", true, 37, "was removed: a kubelet of Kubernetes 1.37"),
            ("SidecarContainers", false, 38, "was removed"),
            ("SidecarContainers", true, 36, "is removed in Kubernetes 1.37; this cluster has 1.36"),
            ("SidecarContainers", false, 36, "is locked to true since Kubernetes 1.33"),
            ("NodeSwap", false, 37, "is locked to true since Kubernetes 1.34"),
            ("GitRepoVolumeDriver", true, 37, "is locked to false since Kubernetes 1.36"),
            ("GitRepoVolumeDriver", true, 35, "is locked to false from Kubernetes 1.36 on"),
        ] {
            let said = said(name, value, minor).unwrap();
            assert!(said.contains(words), "{name}={value}, 1.{minor}: {said}");
        }
        for (name, value) in [("NodeSwap", true), ("GitRepoVolumeDriver", false), ("AllBeta", true)] {
            assert_eq!(said(name, value, 37), None, "{name}={value}");
        }
    }
}
