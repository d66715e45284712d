package main

import (
	"context"
	"strconv"
	"strings"

	info "github.com/google/cadvisor/info/v1"
	infov2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// cadvisor tells the kubelet of the machine.
type cadvisor struct{ hardware }

// The rest of the interface is never asked for anything that matters here.
var fake cadvisortest.Fake

func (c *cadvisor) Start() error { return nil }

func (c *cadvisor) MachineInfo() (*info.MachineInfo, error) {
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

func (c *cadvisor) ContainerInfoV2(name string, options infov2.RequestOptions) (map[string]infov2.ContainerInfo, error) {
	return fake.ContainerInfoV2(name, options)
}

func (c *cadvisor) GetRequestedContainersInfo(name string, options infov2.RequestOptions) (map[string]*info.ContainerInfo, error) {
	return fake.GetRequestedContainersInfo(name, options)
}

func (c *cadvisor) ImagesFsInfo(context.Context) (infov2.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) RootFsInfo() (infov2.FsInfo, error) {
	size := uint64(max(c.disk, 0))
	return infov2.FsInfo{Capacity: size, Available: size - size/5, Usage: size / 5}, nil
}

func (c *cadvisor) ContainerFsInfo(context.Context) (infov2.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) GetDirFsInfo(string) (infov2.FsInfo, error) { return c.RootFsInfo() }

// containerManager has no cgroups, and reserves what the kubelet's configuration says.
type containerManager struct {
	cm.ContainerManager
	hardware
	config *kubeletconfig.KubeletConfiguration
}

func newContainerManager(hardware hardware, config *kubeletconfig.KubeletConfiguration) cm.ContainerManager {
	return &containerManager{cm.NewStubContainerManager(), hardware, config}
}

func (m *containerManager) GetCapacity(bool) v1.ResourceList {
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk, resource.BinarySI)}
}

// As the kubelet's own does: what is reserved for it and for the system, and the hard eviction thresholds.
func (m *containerManager) GetNodeAllocatableReservation() v1.ResourceList {
	sum := v1.ResourceList{}
	add := func(name v1.ResourceName, amount resource.Quantity) {
		sum[name] = func(q resource.Quantity) resource.Quantity { q.Add(amount); return q }(sum[name])
	}
	for _, table := range []map[string]string{m.config.KubeReserved, m.config.SystemReserved} {
		for name, text := range table {
			add(v1.ResourceName(name), resource.MustParse(text))
		}
	}
	signals := map[string]struct {
		name     v1.ResourceName
		capacity int64
	}{
		"memory.available": {v1.ResourceMemory, int64(m.memory)},
		"nodefs.available": {v1.ResourceEphemeralStorage, m.disk},
	}
	for signal, text := range m.config.EvictionHard {
		about, known := signals[signal]
		if !known {
			continue
		}
		if part, isPart := strings.CutSuffix(text, "%"); isPart {
			percent, _ := strconv.ParseFloat(part, 64)
			add(about.name, *resource.NewQuantity(int64(float64(about.capacity)*percent/100), resource.BinarySI))
		} else {
			add(about.name, resource.MustParse(text))
		}
	}
	return sum
}
