use std::fmt::Write;
use std::sync::Arc;

use crate::World;
use model::Pod;

/// Two nodes, `a` and `b`, with the given numbers of devices, and a class for the devices.
fn cluster(devices: [usize; 2]) -> String {
    let mut text = String::from(
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\n\
         spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == \"x.example.com\"'}}]}\n",
    );
    for (node, count) in ["a", "b"].into_iter().zip(devices) {
        let all: Vec<String> = (0..count)
            .map(|at| {
                format!("{{name: gpu-{at}, attributes: {{index: {{int: {at}}}, model: {{string: m}}}}}}")
            })
            .collect();
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n\
             status: {{allocatable: {{cpu: 8, memory: 8Gi, pods: 99}}}}\n\
             ---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {node}-x}}\n\
             spec: {{driver: x.example.com, nodeName: {node}, devices: [{}],\n\
             pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}}}\n",
            all.join(", ")
        );
    }
    text
}

/// A claim with one request.
fn claim(name: &str, request: &str, status: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, namespace: d}}\n\
         spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, {request}}}}}]}}}}\n{status}\n"
    )
}

/// A pod that uses a claim by name.
fn pod(name: &str, claim: &str, node: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: {name}}}\n\
         spec: {{{node} containers: [{{name: c}}], resourceClaims: [{{name: g, resourceClaimName: {claim}}}]}}\n"
    )
}

fn world(text: &str) -> (World, Vec<Arc<Pod>>) {
    let (snapshot, _) = snapshot::read(text).unwrap();
    (World::new(&snapshot), snapshot.pods)
}

/// The reasons why the two nodes refuse the pod. A reason is empty if the node takes the pod.
fn said(world: &World, pod: &Arc<Pod>) -> [String; 2] {
    let prepared = world.prepare(pod);
    [0, 1].map(|at| world.check(&prepared, at).map_or_else(|refusal| refusal.to_string(), |()| String::new()))
}

#[test]
fn pods_take_devices_from_each_other_until_they_go() {
    let mut text = cluster([2, 1]);
    for name in ["p", "q", "r"] {
        text += &(claim(name, "count: 1", "") + &pod(name, name, ""));
    }
    let (mut world, pods) = world(&text);
    let fits = |world: &World, pod| said(world, pod).map(|word| word.is_empty());
    assert_eq!(fits(&world, &pods[0]), [true, true]);
    world.place(&pods[0], 0);
    assert_eq!(fits(&world, &pods[1]), [true, true]);
    world.place(&pods[1], 0);
    assert_eq!(fits(&world, &pods[2]), [false, true]);
    let words = &said(&world, &pods[2])[0];
    assert_eq!(words, "d/r, request r: wants 1 device of class gpu, 2 match, 0 free");
    world.remove(&pods[0], 0);
    assert_eq!(fits(&world, &pods[2]), [true, true]);
    // Placing a pod and removing it again changes nothing.
    world.place(&pods[2], 1);
    world.remove(&pods[2], 1);
    assert_eq!(fits(&world, &pods[2]), [true, true]);
}

#[test]
fn a_claim_that_pods_share_is_allocated_once() {
    let text = cluster([1, 1]) + &claim("c", "count: 1", "") + &pod("p", "c", "") + &pod("q", "c", "");
    let (mut world, pods) = world(&text);
    world.place(&pods[0], 1);
    let words = said(&world, &pods[1]);
    assert_eq!(words, ["this node cannot use the devices allocated for the resource claim d/c", ""]);
    world.place(&pods[1], 1);
    world.remove(&pods[0], 1);
    assert!(!said(&world, &pods[0])[0].is_empty(), "another pod still uses the claim");
    world.remove(&pods[1], 1);
    assert_eq!(said(&world, &pods[0]), ["", ""]);
}

#[test]
fn what_was_allocated_is_free_once_its_pod_is_moved_and_the_same_again_when_it_is_not() {
    let allocated = |reserved: &str| {
        format!(
            "status: {{allocation: {{devices: {{results: [{{request: r, driver: x.example.com, pool: a, device: gpu-1}}]}},\n\
             nodeSelector: {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, values: [a]}}]}}]}}}},\n\
             reservedFor: [{reserved}]}}"
        )
    };
    let one = |name: &str| format!("{{resource: pods, name: {name}, uid: {name}}}");
    let text = |reserved: &str| {
        let second = "selectors: [{cel: {expression: 'device.attributes[\"x.example.com\"].index == 1'}}]";
        cluster([2, 1])
            + &claim("c", "count: 1", &allocated(reserved))
            + &pod("p", "c", "nodeName: a,")
            + &claim("z", second, "")
            + &pod("z", "z", "")
    };
    let (mut world, pods) = world(&text(&one("p")));
    let other = pods[1].clone();
    let is_free = |world: &World| said(world, &other)[0].is_empty();
    assert!(!is_free(&world));
    world.remove(&pods[0], 0);
    assert!(is_free(&world));
    world.place(&pods[0], 0);
    assert!(!is_free(&world), "the pod has the same device again");
    let (mut shared, pods) = self::world(&text(&format!("{}, {}", one("p"), one("another-pod"))));
    shared.remove(&pods[0], 0);
    assert!(!said(&shared, &pods[1])[0].is_empty(), "the claim is still reserved for another pod");
    // A pod that was only tried on a node keeps the devices that the cluster has reserved for it. The trial
    // does not affect the reservations of other pods.
    let tried = text(&one("p")).replace("nodeName: a,", "");
    let (mut tried, pods) = self::world(&tried);
    tried.place(&pods[0], 0);
    tried.remove(&pods[0], 0);
    assert!(!is_free(&tried), "the reservation outlasts a trial");
    let beside = text(&format!("{}, {}", one("p"), one("another-pod"))) + &pod("zz", "c", "");
    let (mut beside, pods) = self::world(&beside);
    beside.place(&pods[2], 0);
    beside.remove(&pods[2], 0);
    beside.remove(&pods[0], 0);
    assert!(!is_free(&beside), "the other pod still has its reservation");
}

#[test]
fn extended_resources_are_served_by_a_class_where_the_node_does_not_offer_them() {
    let asks = |name: &str, count: u32| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: {name}}}\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{example.com/gpu: {count}}}}}}}]}}\n"
        )
    };
    let text = cluster([2, 1]) + &asks("p", 2) + &asks("q", 1);
    let (mut world, pods) = world(&text);
    let few = "pod d/p, request example.com/gpu: wants 2 devices of class gpu, 1 matches, 1 free";
    assert_eq!(said(&world, &pods[0]), ["", few]);
    world.place(&pods[0], 0);
    assert!(!said(&world, &pods[1])[0].is_empty());
    world.remove(&pods[0], 0);
    assert_eq!(said(&world, &pods[1]), ["", ""]);
    let own = text.replacen("pods: 99}", "pods: 99, example.com/gpu: 1}", 1);
    let (world, pods) = self::world(&own);
    assert_eq!(said(&world, &pods[0])[0], "wants 2 example.com/gpu, 1 free");
}

#[test]
fn reasons_say_which_request_and_which_selector() {
    let expression = "device.attributes[\"x.example.com\"].index > 5";
    let selector = format!("selectors: [{{cel: {{expression: '{expression}'}}}}]");
    let wrong = "selectors: [{cel: {expression: 'device.attributes[\"x.example.com\"].size > 5'}}]";
    let unknown = "selectors: [{cel: {expression: 'isIP(device.driver)'}}]";
    let none = cluster([2, 1]).replace("name: gpu}", "name: other}");
    for (text, request, expected) in [
        (
            cluster([2, 1]),
            selector.as_str(),
            "d/c, request r: wants 1 device of class gpu with `device.attributes[\"x.example.com\"].index > 5`, none match here",
        ),
        (cluster([2, 1]), "allocationMode: All, tolerations: []", ""),
        (
            cluster([0, 1]),
            "allocationMode: All",
            "d/c, request r: wants all devices of class gpu, none match here",
        ),
        (
            cluster([2, 1]),
            wrong,
            "d/c: the selector `device.attributes[\"x.example.com\"].size > 5` cannot be evaluated for the device x.example.com/a/gpu-0: no such key: size",
        ),
        (
            cluster([2, 1]),
            unknown,
            "d/c: the selector `isIP(device.driver)` cannot be evaluated for the device x.example.com/a/gpu-0: the function isIP is not supported",
        ),
        (none, "count: 1", "d/c, request r: the device class gpu does not exist or cannot be read"),
    ] {
        let (world, pods) = world(&(text + &claim("c", request, "") + &pod("p", "c", "")));
        assert_eq!(said(&world, &pods[0])[0], expected);
    }
    let (world, pods) = world(&(cluster([1, 1]) + &pod("p", "gone", "")));
    assert_eq!(said(&world, &pods[0])[0], "the resource claim d/gone does not exist or cannot be read");
}

#[test]
fn a_search_without_end_is_given_up() {
    // 24 devices are requested, but only 23 exist. To find this out, the search would have to try far too
    // many choices.
    let apart = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: d}\n\
         spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 12}},\n\
         {name: s, exactly: {deviceClassName: gpu, count: 12}}]}}\n";
    let (world, pods) = world(&(cluster([23, 1]) + apart + &pod("p", "c", "")));
    assert_eq!(said(&world, &pods[0])[0], "there are too many combinations of devices to try");
}
