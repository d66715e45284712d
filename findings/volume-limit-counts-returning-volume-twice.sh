#!/usr/bin/env bash
# On a node at its volume limit, kube-scheduler refuses the pod whose own volume is still attached there.
#
# Expected: a pod that returns (a StatefulSet's, after a restart) to the node where its volume is still
# attached needs no additional attachment: the volume counts once, as it does if two pods share it.
# What happens: NodeVolumeLimits counts the volumes of the node's pods, adds each VolumeAttachment whose volume none
# of those pods uses, then adds the new pod's volumes. Only the first group is subtracted from the last, so an attached
# volume that only the new pod uses counts twice. At the limit, the node is refused until the volume has been
# detached; it is then attached again.
# Version: kube-scheduler 1.37.2 (nodevolumelimits).
# Source of the rule: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go of Kubernetes (Filter).
# Why it matters: the Proxmox CSI plugin reports 24 volumes for each node, and a local volume cannot move to another
# host. While the attachment lasts the pod is Unschedulable, so an autoscaler creates a machine that the pod never
# needs: the node that has its volume takes it a little later.
#
# Needs Go. The scheduler's own filter is called with objects from client-go's fake API server.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
k8s=v1.37.2
module=$(go mod download -json "k8s.io/kubernetes@$k8s" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  printf 'module finding\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$k8s"
  sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\t\1 => \1 v0.'"${k8s#v1.}"'#p' "$module"
  echo ')'
} > go.mod
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
)

const (
	driver = "csi.example.com"
	limit  = 24
)

// handle gives the filter what it needs from the scheduler.
type handle struct {
	fwk.Handle
	factory informers.SharedInformerFactory
	csi     fwk.CSIManager
}

func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h handle) SharedCSIManager() fwk.CSIManager                       { return h.csi }

// volume is a bound claim, its volume, and a pod that uses it.
func volume(name string) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, *v1.Pod) {
	none := ""
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: name, StorageClassName: &none},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	disk := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
		ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID}}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}, Spec: v1.PodSpec{
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}}}
	return claim, disk, pod
}

// verdict on the returning pod: others is the number of pods with a volume on the node, attached says whether the
// pod's own volume is still attached there, shared whether another pod on the node uses it.
func verdict(others int, attached, shared bool) string {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	count := int32(limit)
	claim, disk, pod := volume("back")
	objects := []runtime.Object{claim, disk, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "n1", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}}
	attach := func(name string) {
		objects = append(objects, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-" + name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	}
	running := []*v1.Pod{}
	for i := range others {
		c, d, p := volume(fmt.Sprint("other", i))
		objects, running = append(objects, c, d), append(running, p)
		attach(d.Name)
	}
	if attached {
		attach(disk.Name)
	}
	if shared {
		_, _, p := volume("back")
		p.Name, p.UID = "sharer", "sharer"
		running = append(running, p)
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	manager := nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())
	plugin, err := nodevolumelimits.NewCSI(ctx, nil, handle{factory: factory, csi: manager}, feature.Features{EnableVolumeLimitScaling: true})
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	node := framework.NewNodeInfo(running...)
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if status := plugin.(fwk.FilterPlugin).Filter(ctx, nil, pod, node); !status.IsSuccess() {
		return "refused, " + status.Message()
	}
	return "fits"
}

func main() {
	fmt.Println("limit of the node:", limit, "volumes; the pod that comes back has one")
	fmt.Println("  23 other volumes in use, its own not attached:          ", verdict(23, false, false))
	fmt.Println("  23 other volumes in use, its own still attached:        ", verdict(23, true, false))
	fmt.Println("  the same, and another pod there uses its volume as well:", verdict(23, true, true))
	fmt.Println("  22 other volumes in use, its own still attached:        ", verdict(22, true, false))
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o finding . 2> build.log || { cat build.log >&2; exit 2; }

echo "kube-scheduler $k8s"
./finding > got 2> log || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
limit of the node: 24 volumes; the pod that comes back has one
  23 other volumes in use, its own not attached:           fits
  23 other volumes in use, its own still attached:         refused, node(s) exceed max volume count
  the same, and another pod there uses its volume as well: fits
  22 other volumes in use, its own still attached:         fits
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
