package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/scheduler"
	config "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	cache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// How long the scheduler may take to see a cluster.
const patience = time.Minute

// read makes objects of what kubectl prints, with the API server's defaults. Kinds that Kubernetes does not know are left out.
func read(raw []json.RawMessage) ([]runtime.Object, error) {
	var objects []runtime.Object
	for number, one := range raw {
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(one, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", number, err)
		}
		legacyscheme.Scheme.Default(object)
		if pod, ok := object.(*v1.Pod); ok {
			if err := admit(pod); err != nil {
				return nil, fmt.Errorf("object %d: %w", number, err)
			}
		}
		of, err := meta.Accessor(object)
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", number, err)
		}
		if of.GetUID() == "" {
			of.SetUID(types.UID(fmt.Sprintf("uid-%d", number)))
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// admit fills in what the API server fills in when a pod is created, after its defaults.
func admit(pod *v1.Pod) error {
	var internal core.Pod
	if err := legacyscheme.Scheme.Convert(pod, &internal, nil); err != nil {
		return err
	}
	podutil.DefaultPodLevelResources(&internal)
	return legacyscheme.Scheme.Convert(&internal, pod, nil)
}

// cluster is a scheduler that has seen its objects.
type cluster struct {
	*scheduler.Scheduler
	client   *fake.Clientset
	snapshot *cache.Snapshot
	// In the order in which they came.
	nodes   []*v1.Node
	waiting []*v1.Pod
	stop    func()
}

// profiles are the default profile, and one more for each of these filters that has no other one.
func profiles(filters []string) ([]config.KubeSchedulerProfile, error) {
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var defaults config.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &defaults, nil); err != nil {
		return nil, err
	}
	profiles := defaults.Profiles
	usual := profiles[0]
	for _, name := range filters {
		only := config.PluginSet{Enabled: []config.Plugin{{Name: name}}}
		profile := usual.DeepCopy()
		profile.SchedulerName = "only-" + name
		profile.Plugins = &config.Plugins{
			QueueSort: config.PluginSet{Enabled: []config.Plugin{{Name: "PrioritySort"}}},
			Bind:      config.PluginSet{Enabled: []config.Plugin{{Name: "DefaultBinder"}}},
			Filter:    only,
		}
		if slices.Contains(preFilters, name) {
			profile.Plugins.PreFilter = only
		}
		profiles = append(profiles, *profile)
	}
	return profiles, nil
}

// newCluster starts a scheduler, without its loops, and waits until it has seen all objects.
func newCluster(ctx context.Context, objects []runtime.Object, filters []string) (*cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	profiles, err := profiles(filters)
	if err != nil {
		cancel()
		return nil, err
	}
	var rest []runtime.Object
	var bound []*v1.Pod
	it := &cluster{snapshot: cache.NewEmptySnapshot()}
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.Node:
			it.nodes = append(it.nodes, object)
		case *v1.Pod:
			if object.Status.Phase == v1.PodSucceeded || object.Status.Phase == v1.PodFailed {
				continue
			}
			if object.Spec.NodeName == "" {
				it.waiting = append(it.waiting, object)
			} else {
				bound = append(bound, object)
			}
		default:
			rest = append(rest, object)
		}
	}
	it.client = fake.NewSimpleClientset(rest...)
	watched := announceWatches(it.client)
	informers := scheduler.NewInformerFactory(it.client, 0, nil)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	it.Scheduler, err = scheduler.New(ctx, it.client, informers, nil, recorder,
		scheduler.WithProfiles(profiles...), scheduler.WithNodeInfoSnapshot(it.snapshot), scheduler.WithParallelism(1))
	if err != nil {
		cancel()
		return nil, err
	}
	it.stop = func() {
		it.SchedulingQueue.Close()
		cancel()
		informers.Shutdown()
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	// Its own wait looks every 100 ms.
	for it.WaitForHandlersSync(shortly(ctx)) != nil {
		if err := ctx.Err(); err != nil {
			it.stop()
			return nil, err
		}
	}
	for range 2 {
		select {
		case <-watched:
		case <-ctx.Done():
			it.stop()
			return nil, errors.New("nodes or pods are not watched")
		}
	}
	// Nodes and pods come afterwards, one by one, so that their order is that of the request.
	if err := it.show(ctx, bound); err != nil {
		it.stop()
		return nil, err
	}
	return it, nil
}

// announceWatches says when nodes and when pods are watched: what is made between a list and its watch is never seen.
func announceWatches(client *fake.Clientset) <-chan struct{} {
	watched := make(chan struct{}, 2)
	for _, kind := range []string{"nodes", "pods"} {
		var first sync.Once
		client.PrependWatchReactor(kind, func(action testing.Action) (bool, watch.Interface, error) {
			watches, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
			if err == nil {
				first.Do(func() { watched <- struct{}{} })
			}
			return true, watches, err
		})
	}
	return watched
}

// shortly is a context that ends at once, or nearly so.
func shortly(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// show gives nodes and pods to the scheduler, and waits until it has them.
func (it *cluster) show(ctx context.Context, bound []*v1.Pod) error {
	seen := sight{nodes: sets.New[string]()}
	for number, node := range it.nodes {
		if _, err := it.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		seen.nodes.Insert(node.Name)
		if err := it.awaitNowAndThen(ctx, number, &seen); err != nil {
			return err
		}
	}
	// A pod that is seen before its node would count that node, too.
	if err := it.await(ctx, &seen); err != nil {
		return err
	}
	for number, pod := range slices.Concat(bound, it.waiting) {
		if _, err := it.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		switch {
		case pod.Spec.NodeName != "":
			seen.pods++
			// Nodes that pods name count, whether they are there or not.
			seen.nodes.Insert(pod.Spec.NodeName)
		case it.Profiles[pod.Spec.SchedulerName] != nil:
			seen.queued++
		}
		if err := it.awaitNowAndThen(ctx, number, &seen); err != nil {
			return err
		}
	}
	if err := it.await(ctx, &seen); err != nil {
		return err
	}
	return it.Cache.UpdateSnapshot(klog.FromContext(ctx), it.snapshot)
}

// sight is what the scheduler has been shown.
type sight struct {
	nodes        sets.Set[string]
	pods, queued int
}

// awaitNowAndThen keeps the watch of the fake API server from filling up: it holds a hundred changes.
func (it *cluster) awaitNowAndThen(ctx context.Context, number int, seen *sight) error {
	if number%50 != 49 {
		return nil
	}
	return it.await(ctx, seen)
}

func (it *cluster) await(ctx context.Context, seen *sight) error {
	for {
		pods, err := it.Cache.PodCount()
		if err != nil {
			return err
		}
		queued, _ := it.SchedulingQueue.PendingPods()
		if it.Cache.NodeCount() == seen.nodes.Len() && pods == seen.pods && len(queued) == seen.queued {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the scheduler has seen %d of %d nodes, %d of %d pods and %d of %d that wait",
				it.Cache.NodeCount(), seen.nodes.Len(), pods, seen.pods, len(queued), seen.queued)
		}
		time.Sleep(200 * time.Microsecond)
	}
}
