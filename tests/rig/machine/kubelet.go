package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	kubeadmconstants "k8s.io/kubernetes/cmd/kubeadm/app/constants"
	kubeletphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	"k8s.io/kubernetes/pkg/kubemark"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// The kubelet: TLS bootstrap, then Kubernetes' own hollow kubelet, with the cluster's configuration and the flags that
// kubeadm wrote for this machine.
func (g guest) kubelet(ctx context.Context) error {
	flags, config, err := g.settings(ctx)
	if err != nil {
		return err
	}
	kubeconfig := g.path("kubelet.conf")
	name := types.NodeName(flags.HostnameOverride)
	if err := bootstrap.LoadClientCert(ctx, kubeconfig, g.path("bootstrap-kubelet.conf"), g.path("pki"), name); err != nil {
		return errors.Wrap(err, "failed to run Kubelet")
	}
	client, heartbeats, err := clients(kubeconfig, config)
	if err != nil {
		return err
	}
	endpoint := "unix://" + g.path("cri.sock")
	// A machine whose power was cut leaves its socket behind.
	if err := os.Remove(g.path("cri.sock")); err != nil && !os.IsNotExist(err) {
		return err
	}
	containers := fakeremote.NewFakeRemoteRuntime()
	if err := containers.Start(endpoint); err != nil {
		return err
	}
	runtime, err := remote.NewRemoteRuntimeService(ctx, endpoint, 15*time.Second, noop.NewTracerProvider(), false)
	if err != nil {
		return err
	}
	manager, err := newContainerManager(ctx, g.hardware, client, flags.RootDirectory)
	if err != nil {
		return err
	}
	hollow := kubemark.NewHollowKubelet(flags, config, client, heartbeats, &cadvisor{g.hardware},
		containers.ImageService, runtime, manager)
	hollow.Run(ctx)
	return nil
}

// settings are the kubelet's: kubeadm's config.yaml, over it the flags of kubeadm-flags.env, over both what a kubelet
// without a machine needs.
func (g guest) settings(ctx context.Context) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, g.path(kubeadmconstants.KubeletConfigurationFileName))
	if err != nil {
		return nil, nil, err
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	flags := options.NewKubeletFlags()
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	words, err := kubeletphase.ReadKubeletDynamicEnvFile(g.path(kubeadmconstants.KubeletEnvFileName))
	if err != nil {
		return nil, nil, err
	}
	if err := set.Parse(words); err != nil {
		return nil, nil, errors.Wrap(err, "failed to parse kubelet flag")
	}
	flags.RootDirectory = g.path("kubelet")
	config.PodLogsDir = g.path("logs")
	config.StaticPodPath = g.path("manifests")
	for _, folder := range []string{flags.RootDirectory, config.PodLogsDir, config.StaticPodPath} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, nil, err
		}
	}
	config.EnableServer = false
	config.ReadOnlyPort = 0
	config.CgroupsPerQOS = false
	config.EnforceNodeAllocatable = nil
	config.ProtectKernelDefaults = false
	return flags, config, nil
}

func clients(kubeconfig string, config *kubeletconfig.KubeletConfiguration) (*clientset.Clientset, *clientset.Clientset, error) {
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	rest, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	rest.UserAgent = "kubelet"
	rest.ContentType = config.ContentType
	rest.QPS, rest.Burst = float32(config.KubeAPIQPS), int(config.KubeAPIBurst)
	client, err := clientset.NewForConfig(rest)
	if err != nil {
		return nil, nil, err
	}
	beat := restclient.CopyConfig(rest)
	beat.QPS = -1
	beat.Timeout = min(config.NodeStatusUpdateFrequency.Duration, time.Duration(config.NodeLeaseDurationSeconds)*time.Second)
	heartbeats, err := clientset.NewForConfig(beat)
	return client, heartbeats, err
}
