#!/usr/bin/env bash
# Karpenter and kube-scheduler judge one node and one pod differently: host ports of sidecars, `::`, a lost GPU.
#
# One would expect: Karpenter finds out by the scheduler's rules whether a pending pod fits a node that is there, so
# that it makes a node if and only if the scheduler needs one.
# What happens, with the same three objects given to both:
# - Host ports of sidecars (init containers with restartPolicy Always) count for the scheduler, not for Karpenter.
#   Two such pods fit one node for Karpenter, so it makes no node, and the second stays pending.
# - `::` as a port's hostIP is every address for Karpenter. For the scheduler only 0.0.0.0 is, addresses are compared
#   as texts, and it puts both pods on one node; Karpenter would make a second one.
# - A device plugin that restarts takes its resource to 0 while a pod still holds a device. That node has less than
#   nothing of it, and Karpenter puts no pod at all there, not even one that asks for CPU alone.
# Versions: Karpenter 1.15.0, kube-scheduler 1.37.2.
# Source of the rules: Karpenter's pkg/scheduling/hostportusage.go and pkg/utils/resources (Fits), which its check of
# an existing node calls; Kubernetes' pkg/scheduler/util (GetHostPorts), nodeports and noderesources.
# Why it matters: Karpenter providers for Proxmox VE share this core. Machines that are made without need, or not
# made although a pod waits, are hard to explain from their logs.
#
# Needs Go, which fetches the release that Karpenter asks for (1.26.9).
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
// Karpenter's answer: what its scheduler asks of an existing node about host ports and resources.
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
