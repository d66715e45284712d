package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// runPods lets every pod run that is bound to one of the nodes, and end as soon as it shall.
func (f fleet) runPods(ctx context.Context) error {
	bound := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "spec.nodeName!="
	})
	factory := informers.NewSharedInformerFactoryWithOptions(f.client, 0, bound)
	pods := factory.Core().V1().Pods()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	add := func(object any) {
		pod, ok := object.(*v1.Pod)
		if ok && strings.HasPrefix(pod.Spec.NodeName, "hollow-") && f.wants(pod) {
			queue.Add(pod.Namespace + "/" + pod.Name)
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range workers {
		go func() {
			for {
				key, ended := queue.Get()
				if ended {
					return
				}
				space, pod, _ := strings.Cut(key, "/")
				seen, err := pods.Lister().Pods(space).Get(pod)
				if err == nil && f.wants(seen) {
					err = f.settle(ctx, seen)
				}
				if err != nil && !apierrors.IsNotFound(err) {
					fmt.Fprintln(os.Stderr, key, err)
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				queue.Done(key)
			}
		}()
	}
	<-ctx.Done()
	return ctx.Err()
}

// wants says whether there is something to do for a pod.
func (f fleet) wants(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodPending
}

func (f fleet) settle(ctx context.Context, seen *v1.Pod) error {
	if seen.DeletionTimestamp != nil {
		var now int64
		uid := seen.UID
		return f.client.CoreV1().Pods(seen.Namespace).Delete(ctx, seen.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
		})
	}
	pod := seen.DeepCopy()
	now := metav1.Now()
	pod.Status.Phase = v1.PodRunning
	pod.Status.StartTime = &now
	for _, kind := range []v1.PodConditionType{v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		condition := v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: now}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	}
	for _, container := range pod.Spec.Containers {
		started := true
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, err := f.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		// It has changed meanwhile, which brings it back here.
		return nil
	}
	return err
}
