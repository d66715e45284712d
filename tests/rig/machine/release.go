// What differs from release to release of Kubernetes. This is for the newest; others have a file of their own in its place.
package main

import (
	"context"

	info "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
)

// cadvisor tells the kubelet of the machine.
type cadvisor struct{ hardware }

// The rest of the interface is never asked for anything that matters here.
var fake cadvisortest.Fake

func (c *cadvisor) Start() error { return nil }

func (c *cadvisor) MachineInfo(klog.Logger) (*info.MachineInfo, error) {
	return &info.MachineInfo{
		NumCores:       c.cpus,
		MemoryCapacity: c.memory,
		SystemUUID:     c.uuid,
		MachineID:      c.uuid,
		BootID:         c.bootID,
	}, nil
}

func (c *cadvisor) VersionInfo() (*info.VersionInfo, error) {
	return &info.VersionInfo{KernelVersion: "6.12.0", ContainerOsVersion: "Debian GNU/Linux 13 (trixie)"}, nil
}

func (c *cadvisor) ContainerInfoV2(name string, options info.RequestOptions) (map[string]info.ContainerInfo, error) {
	return fake.ContainerInfoV2(name, options)
}

func (c *cadvisor) GetRequestedContainersInfo(name string, options info.RequestOptions) (map[string]*info.ContainerInfo, error) {
	return fake.GetRequestedContainersInfo(name, options)
}

func (c *cadvisor) ImagesFsInfo(context.Context) (info.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) RootFsInfo() (info.FsInfo, error) {
	size := uint64(max(c.disk, 0))
	return info.FsInfo{Capacity: size, Available: size - size/5, Usage: size / 5}, nil
}

func (c *cadvisor) ContainerFsInfo(context.Context) (info.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) GetDirFsInfo(string) (info.FsInfo, error) { return c.RootFsInfo() }

func (m *containerManager) GetCapacity(klog.Logger, bool) v1.ResourceList { return m.capacity() }
