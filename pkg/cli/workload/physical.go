package workload

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/syncer/manifest"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// pollCluster is the pause between two looks at what is being deleted.
const pollCluster = 500 * time.Millisecond

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// physicalCluster is a physical cluster as its admin reaches it, and the instance of the
// syncer that is to leave it.
type physicalCluster struct {
	client dynamic.Interface
	file   string
	id     string
	clock  clock.Clock
}

// openCluster reads a kubeconfig of a physical cluster; without a file it returns nil.
func openCluster(file, id string, clk clock.Clock) (*physicalCluster, error) {
	if file == "" {
		return nil, nil
	}
	hint := "look at it: kubectl --kubeconfig " + file + " config view --minify"
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, problem.Usage("--cluster-kubeconfig %q cannot be used: %s", file, problem.Reason(err)).Hint("%s", hint).Because(err)
	}
	config.QPS = -1
	config.Timeout = 30 * time.Second
	config.UserAgent = "kubectl-kcp"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, problem.Usage("--cluster-kubeconfig %q cannot be used: %s", file, problem.Reason(err)).Hint("%s", hint).Because(err)
	}
	return &physicalCluster{client: client, file: file, id: id, clock: clk}, nil
}

// check makes sure, before anything is changed, that the cluster answers and may be
// changed by whoever asks.
func (c *physicalCluster) check(ctx context.Context) error {
	_, err := c.client.Resource(namespaceResource).Get(ctx, names.SyncerNamespace(c.id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // removed already, or never applied
	}
	return c.explain(err)
}

// explain says of an error that it comes from the physical cluster.
func (c *physicalCluster) explain(err error) error {
	if err == nil {
		return nil
	}
	return problem.New("the physical cluster of %q refused: %s", c.file, problem.Describe(err, problem.About{}).Error()).
		Hint("see what it says: kubectl --kubeconfig %s get namespace %s", c.file, names.SyncerNamespace(c.id)).Because(err)
}

// remove deletes the syncer, then what is left of the namespaces that it made, then its
// rights, and waits until all of it is gone. It calls wait with what is still there.
func (c *physicalCluster) remove(ctx context.Context, wait func(what string)) error {
	objects, err := manifest.Removal(c.id)
	if err != nil {
		return err
	}
	for i, obj := range objects {
		gvr, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
		gvr.Resource = plural(gvr.Resource)
		if err := c.delete(ctx, gvr, obj.GetName(), nil, wait); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		// The syncer has ended with its namespace: nobody makes anything any more.
		if err := c.removeTenants(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// plural mends what the guess from a kind makes of policies.
func plural(resource string) string {
	if s, ok := strings.CutSuffix(resource, "policys"); ok {
		return s + "policies"
	}
	return resource
}

// removeTenants deletes the namespaces that this instance of the syncer made. There are
// none unless the syncer had been away.
func (c *physicalCluster) removeTenants(ctx context.Context, wait func(what string)) error {
	list, err := c.client.Resource(namespaceResource).List(ctx, metav1.ListOptions{LabelSelector: names.SyncerLabel + "=" + c.id})
	if err != nil {
		return c.explain(err)
	}
	for i := range list.Items {
		ns := &list.Items[i]
		if !names.IsTenantNamespace(ns.GetName()) {
			continue
		}
		if err := c.delete(ctx, namespaceResource, ns.GetName(), ns, wait); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes one object, of this very uid if seen is given, and waits until it is
// gone.
func (c *physicalCluster) delete(ctx context.Context, gvr schema.GroupVersionResource, name string, seen *unstructured.Unstructured, wait func(what string)) error {
	wait(gvr.Resource + "/" + name + " is still in the physical cluster")
	client := c.client.Resource(gvr)
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if seen != nil {
		options.Preconditions = &metav1.Preconditions{UID: ptr.To(seen.GetUID())}
	}
	err := client.Delete(ctx, name, options)
	for err == nil {
		_, err = client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.clock.After(pollCluster):
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.explain(err)
}
