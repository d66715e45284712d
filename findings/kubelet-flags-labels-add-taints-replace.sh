#!/usr/bin/env bash
# The image's --register-with-taints overrides the taints that kubeadm join was given; other repeated flags add up.
#
# Expected: kubeadm writes the flags of a join to kubeadm-flags.env, the image has its own in
# /etc/default/kubelet (KUBELET_EXTRA_ARGS), and kubeadm's systemd drop-in puts both on one command line, the
# image's last. A list or map flag then appears twice. --node-labels, --system-reserved, --feature-gates
# and --cluster-dns add up, so --register-with-taints should, too.
# What happens: the last --register-with-taints replaces the ones before it. The taints of the JoinConfiguration
# are silently lost: the node takes pods that its taint should have kept away. If both set a label, the image's value
# wins. A taint that ends in '-', with which `kubectl taint` removes a taint, is accepted and ignored.
# Version: kubelet and kubeadm 1.37.2.
# Source of the rule: pkg/util/flag (RegisterWithTaintsVar) and component-base's cli/flag (the maps) of Kubernetes.
# Why it matters: templates on Proxmox VE are made once, by hand, and often carry a start-up taint of a network
# plugin in /etc/default/kubelet. If they are cloned into a pool with its own taints, each node joins without the pool's.
# registerWithTaints in the KubeletConfiguration is overridden by the flag in the same way.
#
# Needs Go.
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
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeletphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
)

// The flags that kubeadm join is given for the node ...
var join = kubeadm.NodeRegistrationOptions{
	Taints: []v1.Taint{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}},
	KubeletExtraArgs: []kubeadm.Arg{
		{Name: "node-labels", Value: "pool=batch,tier=gold"},
		{Name: "system-reserved", Value: "cpu=100m"},
		{Name: "feature-gates", Value: "MemoryQoS=true"},
		{Name: "cluster-dns", Value: "10.96.0.10"},
	},
}

// ... and those that its image has in /etc/default/kubelet.
const image = "--node-labels=disk=ssd,tier=none --system-reserved=memory=1Gi --feature-gates=KubeletInUserNamespace=false" +
	" --cluster-dns=10.96.0.11 --register-with-taints=example.com/network=:NoSchedule"

func must(err error) {
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
}

func list[V any](m map[string]V) string {
	pairs := []string{}
	for k, v := range m {
		pairs = append(pairs, fmt.Sprintf("%s=%v", k, v))
	}
	sort.Strings(pairs)
	return strings.Join(pairs, " ")
}

// kubelet prints what a kubelet reads from its command line, for the given flags.
func kubelet(names string, args ...string) {
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	must(err)
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	must(set.Parse(args))
	taints := []string{}
	for _, taint := range config.RegisterWithTaints {
		taints = append(taints, taint.ToString())
	}
	values := map[string]string{
		"node-labels":          list(flags.NodeLabels),
		"system-reserved":      list(config.SystemReserved),
		"feature-gates":        list(config.FeatureGates),
		"cluster-dns":          strings.Join(config.ClusterDNS, " "),
		"register-with-taints": strings.Join(taints, " "),
	}
	for _, name := range strings.Fields(names) {
		fmt.Printf("  %-21s %s\n", name, values[name])
	}
}

func main() {
	must(kubeletphase.WriteKubeletDynamicEnvFile(&kubeadm.ClusterConfiguration{}, &join, true, "."))
	written, err := kubeletphase.ReadKubeletDynamicEnvFile("kubeadm-flags.env")
	must(err)
	fmt.Println("kubeadm wrote:", strings.Join(written, " "))
	fmt.Println("the image has:", image)
	fmt.Println("the kubelet takes:")
	kubelet("node-labels system-reserved feature-gates cluster-dns register-with-taints", append(written, strings.Fields(image)...)...)
	fmt.Println("with --register-with-taints=dedicated=batch:NoSchedule,example.com/network:NoSchedule- it takes:")
	kubelet("register-with-taints", "--register-with-taints=dedicated=batch:NoSchedule,example.com/network:NoSchedule-")
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o finding . 2> build.log || { cat build.log >&2; exit 2; }

echo "kubelet and kubeadm $k8s"
./finding 2> log | grep -v '^\[kubelet-start\]' > got || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
kubeadm wrote: --register-with-taints=dedicated=batch:NoSchedule --node-labels=pool=batch,tier=gold --system-reserved=cpu=100m --feature-gates=MemoryQoS=true --cluster-dns=10.96.0.10
the image has: --node-labels=disk=ssd,tier=none --system-reserved=memory=1Gi --feature-gates=KubeletInUserNamespace=false --cluster-dns=10.96.0.11 --register-with-taints=example.com/network=:NoSchedule
the kubelet takes:
  node-labels           disk=ssd pool=batch tier=none
  system-reserved       cpu=100m memory=1Gi
  feature-gates         KubeletInUserNamespace=false MemoryQoS=true
  cluster-dns           10.96.0.10 10.96.0.11
  register-with-taints  example.com/network:NoSchedule
with --register-with-taints=dedicated=batch:NoSchedule,example.com/network:NoSchedule- it takes:
  register-with-taints  dedicated=batch:NoSchedule
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
