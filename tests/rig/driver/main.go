// Command driver is a DRA driver of devices that are not there. It publishes them for one node, and prepares claims for the kubelet there, by the
// helper that Kubernetes has for authors of drivers.
//
//	driver --kubeconfig FILE --node NAME --root DIR --name DRIVER --devices N
//
// DIR is the root directory of the node's kubelet. Each claim that is prepared is a file in DIR/plugins/DRIVER/prepared. It runs until it is
// killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

// driver is the part of a driver that each has of its own.
type driver struct {
	node string
	// Where prepared claims are noted.
	prepared string
	fail     context.CancelCauseFunc
}

func main() {
	kubeconfig := pflag.String("kubeconfig", "", "the driver's kubeconfig")
	node := pflag.String("node", "", "the node that it runs on")
	root := pflag.String("root", "", "the kubelet's root directory")
	name := pflag.String("name", "", "the driver's name")
	count := pflag.Int("devices", 1, "how many devices the node has")
	pflag.Parse()
	if err := run(*kubeconfig, *node, *root, *name, *count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, node, root, name string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	own := filepath.Join(root, "plugins", name)
	ctx, fail := context.WithCancelCause(context.Background())
	d := &driver{node: node, prepared: filepath.Join(own, "prepared"), fail: fail}
	if err := os.MkdirAll(d.prepared, 0o700); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(name),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(root, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(own),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices(count)}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func devices(count int) []resourceapi.Device {
	model, version := "a", "2.1.0"
	var all []resourceapi.Device
	for number := range count {
		index := int64(number)
		all = append(all, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", number),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model":   {StringValue: &model},
				"version": {VersionValue: &version},
				"index":   {IntValue: &index},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	return all
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		results[claim.UID] = d.prepare(claim)
	}
	return results, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	var result kubeletplugin.PrepareResult
	for _, one := range claim.Status.Allocation.Devices.Results {
		if one.Pool != d.node {
			result.Err = errors.Join(result.Err, fmt.Errorf("%s is of pool %s, and this node's is %s", one.Device, one.Pool, d.node))
		}
		result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{one.Request}, PoolName: one.Pool, DeviceName: one.Device})
	}
	if result.Err == nil {
		result.Err = os.WriteFile(filepath.Join(d.prepared, string(claim.UID)), []byte(claim.Name), 0o600)
	}
	return result
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(filepath.Join(d.prepared, string(claim.UID)))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

func (d *driver) HandleError(ctx context.Context, err error, what string) {
	klog.FromContext(ctx).Error(err, what)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fail(err)
	}
}
