package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/status"

	pluginwatcher "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Devices for claims are the kubelet's own manager's: it finds drivers by their sockets, and has them prepare each claim before a pod starts.

func (m *containerManager) Start(ctx context.Context, node *v1.Node, active cm.ActivePodsFunc, get cm.GetNodeFunc,
	ready config.SourcesReady, status status.PodStatusProvider, runtime internalapi.RuntimeService, isolation bool) error {
	if err := m.ContainerManager.Start(ctx, node, active, get, ready, status, runtime, isolation); err != nil {
		return err
	}
	return m.devices.Start(ctx, dra.ActivePodsFunc(active), dra.GetNodeFunc(get), ready)
}

func (m *containerManager) GetPluginRegistrationHandlers() map[string]cache.PluginHandler {
	return map[string]cache.PluginHandler{pluginwatcher.DRAPlugin: m.devices.GetWatcherHandler()}
}

func (m *containerManager) GetResources(_ context.Context, pod *v1.Pod, container *v1.Container) (*kubecontainer.RunContainerOptions, error) {
	given, err := m.devices.GetResources(pod, container)
	if err != nil {
		return nil, err
	}
	return &kubecontainer.RunContainerOptions{CDIDevices: given.CDIDevices}, nil
}

func (m *containerManager) PrepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return m.devices.PrepareResources(ctx, pod)
}

func (m *containerManager) UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return m.devices.UnprepareResources(ctx, pod)
}

func (m *containerManager) PodMightNeedToUnprepareResources(uid types.UID) bool {
	return m.devices.PodMightNeedToUnprepareResources(uid)
}
