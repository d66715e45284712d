package main

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/discovery"
	kubeletphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	configutil "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubeconfigutil "k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
)

// The phases of `kubeadm join` that concern the control plane, in its order and by its functions. Left out: the checks of
// the machine, and systemd's part in starting the kubelet.
func (g guest) join() error {
	options := configutil.LoadOrDefaultConfigurationOptions{SkipCRIDetect: true}
	config, err := configutil.LoadJoinConfigurationFromFile(g.path("join.yaml"), options)
	if err != nil {
		return err
	}
	fmt.Println("[preflight] Running pre-flight checks")
	if err := g.preflight(config); err != nil {
		return errors.Wrap(err, "error execution phase preflight")
	}
	return nil
}

func (g guest) preflight(config *kubeadmapi.JoinConfiguration) error {
	bootstrap, err := discovery.For(nil, config)
	if err != nil {
		return err
	}
	client, err := kubeconfigutil.ToClientSet(bootstrap)
	if err != nil {
		return err
	}
	cluster, err := configutil.FetchInitConfigurationFromCluster(client, nil, "preflight", false, false, true, false)
	if err != nil {
		return errors.Wrap(err, "unable to fetch the kubeadm-config ConfigMap")
	}
	cluster.NodeRegistration = config.NodeRegistration

	name, _, err := kubeletphase.GetNodeNameAndHostname(&config.NodeRegistration)
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return errors.Wrapf(err, "cannot get Node %q", name)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
			return errors.Errorf("a Node with name %q and status %q already exists in the cluster. "+
				"You must delete the existing Node or change the name of this new joining Node", name, v1.NodeReady)
		}
	}

	if err := kubeconfigutil.WriteToDisk(g.path("bootstrap-kubelet.conf"), bootstrap); err != nil {
		return err
	}
	instance := &kubeletconfig.KubeletConfiguration{ContainerRuntimeEndpoint: config.NodeRegistration.CRISocket}
	if err := kubeletphase.WriteInstanceConfigToDisk(instance, g.dir); err != nil {
		return err
	}
	if err := kubeletphase.WriteConfigToDisk(&cluster.ClusterConfiguration, g.dir, "", os.Stdout); err != nil {
		return err
	}
	return kubeletphase.WriteKubeletDynamicEnvFile(&cluster.ClusterConfiguration, &cluster.NodeRegistration, true, g.dir)
}
