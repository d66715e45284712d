#!/usr/bin/env bash
# Karpenter and kube-scheduler judge the same node and pod differently: host ports of sidecars, `::`, a lost GPU.
#
# Expected: Karpenter applies the scheduler's rules to decide whether a pending pod fits an existing node, so
# that it creates a node if and only if the scheduler needs one.
# What happens, with the same three objects given to both:
# - Host ports of sidecars (init containers with restartPolicy Always) count for the scheduler, but not for Karpenter.
#   For Karpenter two such pods fit one node, so it creates no node, and the second stays pending.
# - For Karpenter, `::` as a port's hostIP means every address. For the scheduler only 0.0.0.0 does; it compares
#   addresses as strings, and puts both pods on one node. Karpenter would create a second node.
# - When a device plugin restarts, its resource drops to 0 while a pod still holds a device. The node's free amount is
#   then negative, and Karpenter puts no pods there at all, not even one that only requests CPU.
# Versions: Karpenter 1.15.0, kube-scheduler 1.37.2.
# Source of the rules: Karpenter's pkg/scheduling/hostportusage.go and pkg/utils/resources (Fits), which its check of
# an existing node calls; Kubernetes' pkg/scheduler/util (GetHostPorts), nodeports and noderesources.
# Why it matters: Karpenter providers for Proxmox VE share this core. Machines that are created unnecessarily, or not
# created although a pod is pending, are hard to explain from the providers' logs.
#
# Needs Go, which fetches the release that Karpenter requires (1.26.9).
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
k8s=v1.37.2
karpenter=v1.15.0
mkdir karpenter scheduler
printf 'module finding\n\ngo 1.26.9\n\nrequire sigs.k8s.io/karpenter %s\n' "$karpenter" > karpenter/go.mod
module=$(go mod download -json "k8s.io/kubernetes@$k8s" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  printf 'module finding\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$k8s"
  sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\t\1 => \1 v0.'"${k8s#v1.}"'#p' "$module"
  echo ')'
} > scheduler/go.mod
cat > karpenter/main.go <<'GO'
// Karpenter's answer: how its scheduler checks host ports and resources of an existing node.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

type question struct {
	Title   string
	Node    v1.Node
	Running v1.Pod
	New     v1.Pod
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	for _, q := range questions {
		ports := scheduling.NewHostPortUsage()
		ports.Add(&q.Running, scheduling.GetHostPorts(&q.Running))
		free := resources.Subtract(q.Node.Status.Allocatable, resources.RequestsForPods(&q.Running))
		answer := "fits"
		if ports.Conflicts(&q.New, scheduling.GetHostPorts(&q.New)) != nil {
			answer = "refused, host ports"
		} else if !resources.Fits(resources.RequestsForPods(&q.New), free) {
			answer = "refused, resources"
		}
		fmt.Println(answer)
	}
}
GO
cat > scheduler/main.go <<'GO'
// kube-scheduler's answer: its filters NodePorts and NodeResourcesFit.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
)

type question struct {
	Title   string
	Node    v1.Node
	Running v1.Pod
	New     v1.Pod
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
	for _, q := range questions {
		node := framework.NewNodeInfo(&q.Running)
		node.SetNode(&q.Node)
		answer := "fits"
		if !nodeports.Fits(&q.New, node) {
			answer = "refused, host ports"
		} else if short := noderesources.Fits(&q.New, node, nil, noderesources.ResourceRequestsOptions{}); len(short) > 0 {
			answer = "refused, resources"
		}
		fmt.Println(answer)
	}
}
GO
cat > questions.json <<'JSON'
[
  {"title": "a host port of a sidecar, in both pods",
   "node": {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
   "running": {"metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": {"nodeName": "n1",
     "initContainers": [{"name": "exporter", "restartPolicy": "Always", "ports": [{"containerPort": 9100, "hostPort": 9100, "protocol": "TCP"}]}],
     "containers": [{"name": "main"}]}},
   "new": {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": {
     "initContainers": [{"name": "exporter", "restartPolicy": "Always", "ports": [{"containerPort": 9100, "hostPort": 9100, "protocol": "TCP"}]}],
     "containers": [{"name": "main"}]}}},
  {"title": "port 443 of 10.0.0.5 is taken, the new pod asks for it of ::",
   "node": {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
   "running": {"metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": {"nodeName": "n1",
     "containers": [{"name": "main", "ports": [{"containerPort": 443, "hostPort": 443, "hostIP": "10.0.0.5", "protocol": "TCP"}]}]}},
   "new": {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": {
     "containers": [{"name": "main", "ports": [{"containerPort": 443, "hostPort": 443, "hostIP": "::", "protocol": "TCP"}]}]}}},
  {"title": "a running pod holds a GPU whose device plugin has restarted, the new pod wants CPU alone",
   "node": {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "0"}}},
   "running": {"metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": {"nodeName": "n1",
     "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}]}},
   "new": {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": {
     "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]}}}
]
JSON
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod"
(cd scheduler && go build -o ../ask-scheduler .) 2> build.log || { cat build.log >&2; exit 2; }
(cd karpenter && GOTOOLCHAIN=go1.26.9 go build -o ../ask-karpenter .) 2> build.log || { cat build.log >&2; exit 2; }

echo "Karpenter $karpenter, kube-scheduler $k8s"
./ask-karpenter < questions.json > by-karpenter || { cat by-karpenter >&2; exit 2; }
./ask-scheduler < questions.json > by-scheduler || { cat by-scheduler >&2; exit 2; }
sed -n 's/.*"title": "\(.*\)",/\1/p' questions.json > titles
paste -d '\n' titles <(sed 's/^/  Karpenter:      /' by-karpenter) <(sed 's/^/  kube-scheduler: /' by-scheduler) > got
cat got
cat > want <<'WANT'
a host port of a sidecar, in both pods
  Karpenter:      fits
  kube-scheduler: refused, host ports
port 443 of 10.0.0.5 is taken, the new pod asks for it of ::
  Karpenter:      refused, host ports
  kube-scheduler: fits
a running pod holds a GPU whose device plugin has restarted, the new pod wants CPU alone
  Karpenter:      refused, resources
  kube-scheduler: fits
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
