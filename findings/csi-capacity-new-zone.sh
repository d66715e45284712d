#!/usr/bin/env bash
# A zone without a node never gets its first node for a pod with a local volume: two components wait for each other.
#
# Expected: a CSI driver that tracks capacity (CSIDriver.spec.storageCapacity: true, as the Proxmox CSI
# plugin's chart sets it) reports how much room each zone has, including a zone (a Proxmox host) without a node, so that
# an autoscaler can use kube-scheduler's own code to check whether a node there would help.
# What happens: external-provisioner publishes CSIStorageCapacity objects only for the topology segments of existing
# Nodes whose CSINode lists the driver. The driver is never even asked about another zone. kube-scheduler
# reads a missing object as "not enough free storage". So a simulated first node of a zone is always refused, and a
# real one is refused until the driver's pod has registered on it. When the last Node of a zone is removed, so is the
# zone's object.
# Versions: external-provisioner 6.4.0, kube-scheduler 1.37.2 (its VolumeBinding).
# Source of the rule: external-provisioner's pkg/capacity/topology; volumebinding/binder.go of Kubernetes.
# Why it matters: with local storage each Proxmox host is its own zone. An autoscaler that scales a pool from zero, or
# simulates the first node on another host with the scheduler's code, must treat a segment that does not exist yet
# as unknown, not as full. If an object is created by hand, the scheduler uses it, and external-provisioner leaves it
# alone.
#
# Needs Go. The provisioner's controller runs against client-go's fake API server, with a driver that has 1 TiB
# everywhere. The objects that it creates there are passed to the scheduler's binder.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
k8s=v1.37.2
provisioner=v6.4.0
module=$(go mod download -json "k8s.io/kubernetes@$k8s" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  printf 'module finding\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes %s\n' "$k8s"
  printf '\tgithub.com/kubernetes-csi/external-provisioner/v6 %s\n)\n\nreplace (\n' "$provisioner"
  sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\t\1 => \1 v0.'"${k8s#v1.}"'#p' "$module"
  echo ')'
} > go.mod
mkdir publish schedule
cat > publish/main.go <<'GO'
// Runs external-provisioner's capacity controller and prints, stage by stage, what it has published.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity/topology"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
)

const (
	driver = "csi.example.com"
	class  = "local"
	zone   = "topology.kubernetes.io/zone"
)

// A driver with 1 TiB free in every zone. It counts the queries.
type storage struct{ asked map[string]*atomic.Int32 }

func (s storage) GetCapacity(_ context.Context, in *csi.GetCapacityRequest, _ ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	s.asked[in.AccessibleTopology.Segments[zone]].Add(1)
	return &csi.GetCapacityResponse{AvailableCapacity: 1 << 40}, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	return value
}

func node(name, z string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zone: z}}}
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name, TopologyKeys: []string{zone}}}}}
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	client := fake.NewClientset(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driver, VolumeBindingMode: &wait},
		node("a1", "a"), csiNode("a1"),
	)
	// The fake API server does not fill in names and UIDs, as a real one does.
	made := 0
	client.PrependReactor("create", "csistoragecapacities", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		o := action.(clienttesting.CreateAction).GetObject().(*storagev1.CSIStorageCapacity)
		o.Name = fmt.Sprint(o.GenerateName, made)
		o.UID = types.UID(o.Name)
		return false, nil, nil
	})
	objects := informers.NewSharedInformerFactory(client, 0)
	disk := storage{map[string]*atomic.Int32{"a": {}, "b": {}}}
	segments := topology.NewNodeTopology(driver, client, objects.Core().V1().Nodes(), objects.Storage().V1().CSINodes(),
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()))
	controller := capacity.NewCentralCapacityController(disk, driver, client.StorageV1(),
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[capacity.QueueKey]()),
		nil, "finding", "default", segments, objects.Storage().V1().StorageClasses(), objects.Storage().V1().CSIStorageCapacities(),
		time.Second, false, 5*time.Second)
	objects.Start(ctx.Done())
	objects.WaitForCacheSync(ctx.Done())
	go segments.RunWorker(ctx)
	go controller.Run(ctx, 1, &sync.WaitGroup{})

	published := func() []storagev1.CSIStorageCapacity {
		return must(client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})).Items
	}
	// The controller polls each second: two polls beyond what is awaited show what else comes or goes.
	report := func(title string, expected int) {
		for end := time.Now().Add(20 * time.Second); len(published()) != expected && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(2500 * time.Millisecond)
		asked := []bool{disk.asked["a"].Load() > 0, disk.asked["b"].Load() > 0}
		line := map[string]any{"title": title, "asked": asked, "objects": published()}
		fmt.Println(string(must(json.Marshal(line))))
	}
	report("1. zone a has a node with the driver, zone b has no node", 1)
	must(client.CoreV1().Nodes().Create(ctx, node("b1", "b"), metav1.CreateOptions{}))
	report("2. a Node of zone b is there, the driver's pod is not yet on it", 1)
	must(client.StorageV1().CSINodes().Create(ctx, csiNode("b1"), metav1.CreateOptions{}))
	report("3. the driver has registered on it", 2)
	if err := client.CoreV1().Nodes().Delete(ctx, "b1", metav1.DeleteOptions{}); err != nil {
		must(0, err)
	}
	report("4. the last Node of zone b is gone again", 1)
	size := resource.MustParse("1Ti")
	must(client.StorageV1().CSIStorageCapacities("default").Create(ctx, &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{GenerateName: "by-hand-"},
		StorageClassName: class,
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{zone: "b"}},
		Capacity:         &size,
	}, metav1.CreateOptions{}))
	report("5. an administrator makes zone b's object by hand", 2)
}
GO
cat > schedule/main.go <<'GO'
// Queries the scheduler's volume binder about new nodes, given the capacities of each stage.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

const (
	driver = "csi.example.com"
	class  = "local"
	zone   = "topology.kubernetes.io/zone"
)

type stage struct {
	Title   string
	Asked   []bool
	Objects []storagev1.CSIStorageCapacity
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	return value
}

// The scheduler's verdict on a pod with a new claim of 10 GiB, for a node in each zone.
func verdicts(capacities []storagev1.CSIStorageCapacity) []string {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	wait, yes, name := storagev1.VolumeBindingWaitForFirstConsumer, true, class
	objects := []runtime.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driver, VolumeBindingMode: &wait},
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &name,
			Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}}}},
	}
	for i := range capacities {
		objects = append(objects, &capacities[i])
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	s, c := factory.Storage().V1(), factory.Core().V1()
	log := klog.Background()
	binder := must(volumebinding.NewVolumeBinder(log, client, feature.Features{}, c.Pods(), c.Nodes(), s.CSINodes(),
		c.PersistentVolumeClaims(), c.PersistentVolumes(), s.StorageClasses(),
		volumebinding.CapacityCheck{CSIDriverInformer: s.CSIDrivers(), CSIStorageCapacityInformer: s.CSIStorageCapacities()}, time.Second))
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	out := []string{}
	for _, z := range []string{"a", "b"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new-" + z, Labels: map[string]string{zone: z}}}
		_, reasons, err := binder.FindPodVolumes(log, pod, must(binder.GetPodVolumeClaims(log, pod)), node)
		switch {
		case err != nil:
			out = append(out, err.Error())
		case len(reasons) > 0:
			out = append(out, "refused, "+string(reasons[0]))
		default:
			out = append(out, "fits")
		}
	}
	return out
}

func main() {
	input := json.NewDecoder(os.Stdin)
	for {
		var s stage
		if err := input.Decode(&s); err == io.EOF {
			return
		} else {
			must(0, err)
		}
		published := []string{}
		for _, o := range s.Objects {
			published = append(published, o.NodeTopology.MatchLabels[zone]+"="+o.Capacity.String())
		}
		sort.Strings(published)
		v := verdicts(s.Objects)
		fmt.Println(s.Title)
		fmt.Println("  published capacity:", strings.Join(published, " "))
		fmt.Printf("  the driver was asked about: zone a %v, zone b %v\n", s.Asked[0], s.Asked[1])
		fmt.Println("  scheduler, new node of zone a:", v[0])
		fmt.Println("  scheduler, new node of zone b:", v[1])
	}
}
GO
# Two programs: both register a feature gate of the same name, so they cannot share a process.
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o bin/ ./publish ./schedule 2> build.log || { cat build.log >&2; exit 2; }

echo "external-provisioner $provisioner, kube-scheduler $k8s"
bin/publish > stages 2> log || { cat stages log >&2; exit 2; }
bin/schedule < stages > got 2> log || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
1. zone a has a node with the driver, zone b has no node
  published capacity: a=1Ti
  the driver was asked about: zone a true, zone b false
  scheduler, new node of zone a: fits
  scheduler, new node of zone b: refused, node(s) did not have enough free storage
2. a Node of zone b is there, the driver's pod is not yet on it
  published capacity: a=1Ti
  the driver was asked about: zone a true, zone b false
  scheduler, new node of zone a: fits
  scheduler, new node of zone b: refused, node(s) did not have enough free storage
3. the driver has registered on it
  published capacity: a=1Ti b=1Ti
  the driver was asked about: zone a true, zone b true
  scheduler, new node of zone a: fits
  scheduler, new node of zone b: fits
4. the last Node of zone b is gone again
  published capacity: a=1Ti
  the driver was asked about: zone a true, zone b true
  scheduler, new node of zone a: fits
  scheduler, new node of zone b: refused, node(s) did not have enough free storage
5. an administrator makes zone b's object by hand
  published capacity: a=1Ti b=1Ti
  the driver was asked about: zone a true, zone b true
  scheduler, new node of zone a: fits
  scheduler, new node of zone b: fits
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
