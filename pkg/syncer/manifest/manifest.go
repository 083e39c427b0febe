// Package manifest renders what a physical cluster's admin applies to let a syncer in:
// its namespace, its identity with the least rights that syncing needs, an admission
// policy that fences it to the namespaces it made, its access to the control plane, and
// the syncer itself.
//
// # Rights
//
// RBAC knows no selectors. Workload kinds and namespaces are therefore granted for the
// whole cluster, but the policy refuses every write outside of namespaces that carry
// the instance's label. Secrets and ConfigMaps, events, and the logs and containers of
// pods are not granted at all: the syncer may only bind one ClusterRole to itself, which
// the policy again allows in its own namespaces only. So it can neither read nor write a
// Secret of anybody else, nor reach into a pod.
//
// # Identity
//
// All names carry the instance id, so that manifests of two control planes or of two
// SyncTargets can be applied to one cluster and be removed independently of each other.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	podsecurity "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// Options says whose manifest to render. All but Image, Replicas, InstanceID, PodSecurity
// and Resources are required.
type Options struct {
	SyncTargetName    string
	SyncTargetUID     types.UID
	SyncTargetCluster logicalcluster.Name
	// Kubeconfig is the syncer's access to its virtual workspace, as a file.
	Kubeconfig []byte
	// Image of the syncer. When empty no Deployment is rendered, and the manifest
	// begins with a comment that says how to run the binary.
	Image string
	// Replicas of the Deployment; default 2, of which one is active.
	Replicas int32
	// InstanceID defaults to the target key.
	InstanceID string
	// PodSecurity is the syncer's flag of that name; empty means its default.
	PodSecurity string
	// Resources as in the SyncTarget's spec.resources; empty means the default set.
	Resources []workloadv1alpha1.GroupResource
}

// ServiceAccount names the identity that the manifest makes for the syncer.
func (o Options) ServiceAccount() types.NamespacedName {
	return types.NamespacedName{Namespace: names.SyncerNamespace(o.instanceID()), Name: names.ServiceAccount}
}

func (o Options) instanceID() string {
	if o.InstanceID != "" {
		return o.InstanceID
	}
	return names.InstanceID(o.SyncTargetCluster, o.SyncTargetUID)
}

func (o Options) validate() error {
	var errs []error
	for field, value := range map[string]string{
		"SyncTargetName":    o.SyncTargetName,
		"SyncTargetUID":     string(o.SyncTargetUID),
		"SyncTargetCluster": string(o.SyncTargetCluster),
		"Kubeconfig":        string(o.Kubeconfig),
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("syncer manifest: %s is required", field))
		}
	}
	if o.Replicas < 0 {
		errs = append(errs, fmt.Errorf("syncer manifest: Replicas is %d, must not be negative", o.Replicas))
	}
	if o.PodSecurity != "" {
		if _, err := podsecurity.ParseLevel(o.PodSecurity); err != nil {
			errs = append(errs, fmt.Errorf("syncer manifest: PodSecurity %q: %w", o.PodSecurity, err))
		}
	}
	return errors.Join(errs...)
}

// SyncerFlags returns the flags that identify the SyncTarget to the syncer's binary.
func (o Options) SyncerFlags() []string {
	flags := []string{
		"--sync-target-name=" + o.SyncTargetName,
		"--sync-target-uid=" + string(o.SyncTargetUID),
		"--sync-target-cluster=" + string(o.SyncTargetCluster),
	}
	if o.InstanceID != "" {
		flags = append(flags, "--instance-id="+o.InstanceID)
	}
	if o.PodSecurity != "" {
		flags = append(flags, "--pod-security="+o.PodSecurity)
	}
	return flags
}

// Render returns the manifest as YAML documents in the order in which they can be
// applied.
func Render(o Options) ([]byte, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	synced, err := resources.Synced(o.Resources)
	if err != nil {
		return nil, err
	}
	id := o.instanceID()
	objects := []runtime.Object{
		namespace(id),
		serviceAccount(id),
		clusterRole(id, synced),
		clusterRoleBinding(id),
		dataRole(id, synced),
		leaseRole(id),
		leaseRoleBinding(id),
		policy(id),
		policyBinding(id),
		kubeconfigSecret(id, o.Kubeconfig),
	}
	var out bytes.Buffer
	if o.Image == "" {
		out.WriteString(runComment(o))
	} else {
		objects = append(objects, deployment(id, o))
	}
	for _, obj := range objects {
		doc, err := marshal(obj)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// marshal leaves out the status, which an admin has no use for.
func marshal(obj runtime.Object) ([]byte, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("syncer manifest: cannot convert %T: %w", obj, err)
	}
	delete(u, "status")
	doc, err := yaml.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("syncer manifest: cannot encode %T: %w", obj, err)
	}
	return doc, nil
}

func runComment(o Options) string {
	sa := o.ServiceAccount()
	return fmt.Sprintf(`# No syncer image was given, so this manifest runs none. Apply it, then run the binary
# with two kubeconfigs: one with the content of Secret %[1]s/%[2]s, and one
# for this cluster with a token of the syncer's service account
# (kubectl create token %[3]s --namespace %[1]s --duration 24h):
#
#   syncer --from-kubeconfig kcp.kubeconfig --to-kubeconfig cluster.kubeconfig \
#     %[4]s
`, sa.Namespace, kubeconfigSecretName, sa.Name, strings.Join(o.SyncerFlags(), " \\\n#     "))
}
