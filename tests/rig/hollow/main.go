// Command hollow is many nodes at once, as far as a control plane can tell: their Node objects, their Leases, and pods that run as soon
// as they are bound to one. A kubelet each, as `machine` has it, would take a gigabyte for every dozen.
//
//	hollow --kubeconfig FILE --nodes N
//
// It runs until it is killed. Nodes that are there already are taken over.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// How many calls are under way at a time.
const workers = 48

func main() {
	kubeconfig := pflag.String("kubeconfig", "", "an administrator's kubeconfig")
	count := pflag.Int("nodes", 1000, "how many nodes")
	pflag.Parse()
	if err := run(context.Background(), *kubeconfig, *count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// As quick as the API server lets it be.
	config.QPS = -1
	config.UserAgent = "hollow"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	fleet := fleet{client, count}
	if err := fleet.register(ctx); err != nil {
		return err
	}
	go fleet.beat(ctx)
	return fleet.runPods(ctx)
}
