#!/usr/bin/env bash
# A zone label on a PersistentVolume keeps its pod off nodes that only have a region label, but not off unlabelled ones.
#
# Expected: labels are for finding objects, while nodeAffinity says where a volume can be used. And if the label
# did count, a node without a zone would be refused for a volume of zone a, as it would be by node affinity.
# What happens: kube-scheduler's VolumeZone reads topology.kubernetes.io/zone and /region from the labels of a bound
# volume of any kind, including NFS. A node with neither label passes. A node with either must match each of the volume's
# labels: one that only has a region is refused. "a__b" as the value means zone a or b.
# Version: kube-scheduler 1.37.2 (volumezone).
# Source of the rule: pkg/scheduler/framework/plugins/volumezone of Kubernetes; two underscores separate zones in
# cloud-provider's volume helpers.
# Why it matters: volumes created by hand for NFS or iSCSI are labelled with their site. As long as the nodes on Proxmox
# VE have no topology labels, this works. A cloud controller manager adds region and zone (the host) later, on
# a fresh node some seconds after it has joined: it then refuses pods that fitted before.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"
)

type labels = map[string]string

// handle gives the filter what it needs from the scheduler.
type handle struct {
	fwk.Handle
	factory informers.SharedInformerFactory
}

func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

var nodes = []struct {
	name   string
	labels labels
}{
	{"no labels", nil},
	{"region r", labels{v1.LabelTopologyRegion: "r"}},
	{"zone a", labels{v1.LabelTopologyZone: "a"}},
	{"zone b", labels{v1.LabelTopologyZone: "b"}},
	{"region r, zone a", labels{v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: "a"}},
}

// report prints, for each node, whether a pod with an NFS volume with these labels may run there.
func report(title string, of labels) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	none := ""
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "share", Labels: of}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "10.0.0.9", Path: "/share"}},
			ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: "share"}}},
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "share", Namespace: "default"},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: "share", StorageClassName: &none}},
	), 0)
	plugin, err := volumezone.New(ctx, nil, handle{factory: factory}, feature.Features{})
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: v1.PodSpec{
		Volumes: []v1.Volume{{Name: "share", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "share"}}}}}}
	fmt.Println("NFS volume with", title)
	for _, n := range nodes {
		node := framework.NewNodeInfo()
		node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: n.labels}})
		answer := "fits"
		if status := plugin.(fwk.FilterPlugin).Filter(ctx, framework.NewCycleState(), pod, node); !status.IsSuccess() {
			answer = "refused, " + status.Message()
		}
		fmt.Printf("  node with %-17s %s\n", n.name+":", answer)
	}
}

func main() {
	report("no labels", nil)
	report("zone a", labels{v1.LabelTopologyZone: "a"})
	report("zone a__b", labels{v1.LabelTopologyZone: "a__b"})
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o finding . 2> build.log || { cat build.log >&2; exit 2; }

echo "kube-scheduler $k8s"
./finding > got 2> log || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
NFS volume with no labels
  node with no labels:        fits
  node with region r:         fits
  node with zone a:           fits
  node with zone b:           fits
  node with region r, zone a: fits
NFS volume with zone a
  node with no labels:        fits
  node with region r:         refused, node(s) had no available volume zone
  node with zone a:           fits
  node with zone b:           refused, node(s) had no available volume zone
  node with region r, zone a: fits
NFS volume with zone a__b
  node with no labels:        fits
  node with region r:         refused, node(s) had no available volume zone
  node with zone a:           fits
  node with zone b:           fits
  node with region r, zone a: fits
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
