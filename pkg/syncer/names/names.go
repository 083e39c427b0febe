// Package names holds what a syncer calls things: the labels and annotations that mark
// an object as its own, and the names of the objects that it makes in the physical
// cluster and in tenants' workspaces. All are pure functions of identities, so that a
// restarted syncer, a second replica and the printed manifest agree.
//
// # Identity
//
// Everything carries the instance id, which is the target key of the SyncTarget unless
// set otherwise. Two control planes, or two SyncTargets of one, that share a physical
// cluster differ in it and therefore never meet in a name.
package names

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	// Domain is the prefix of all labels and annotations of syncing.
	Domain = "workload.kcp.io/"
	// SyncerLabel marks everything that a syncer makes in the physical cluster; its
	// value is the instance id.
	SyncerLabel = Domain + "syncer"
	// SourceAnnotation says on a downstream namespace whose it is (Source as JSON).
	SourceAnnotation = Domain + "source"
	// GenerationAnnotation holds the generation of the workspace's object that was
	// applied.
	GenerationAnnotation = Domain + "generation"
	// SourceUIDAnnotation holds the uid of the workspace's object that was applied.
	SourceUIDAnnotation = Domain + "source-uid"
	// HashAnnotation holds a hash of what was applied.
	HashAnnotation = Domain + "applied-hash"
	// MirrorUIDAnnotation holds on a mirror the uid of the object that it mirrors.
	MirrorUIDAnnotation = Domain + "mirrored-uid"
	// MirrorUIDLabel holds the same where annotations are the user's.
	MirrorUIDLabel = MirrorUIDAnnotation

	// FieldManager is the syncer's name in server-side apply.
	FieldManager = "kcp-syncer"
	// ServiceAccount is the name of the syncer's account in its own namespace.
	ServiceAccount = "kcp-syncer"
	// Lease is the name of the leader election lease in its own namespace.
	Lease = "kcp-syncer"
	// NamespacePrefix starts the name of every namespace made for a tenant.
	NamespacePrefix = "kcp-"

	syncerNamespacePrefix = "kcp-syncer-"
	// namespaceHash is the number of characters of the hash in a namespace's name.
	namespaceHash = 20
)

// InstanceID returns the default instance id of the syncer of a SyncTarget.
func InstanceID(cluster logicalcluster.Name, uid types.UID) string {
	return workloadv1alpha1.TargetKey(cluster, uid)
}

// SyncerNamespace is where the syncer itself lives.
func SyncerNamespace(instanceID string) string { return syncerNamespacePrefix + instanceID }

// ClusterRole is what the syncer may do everywhere.
func ClusterRole(instanceID string) string { return "kcp-syncer-" + instanceID }

// DataRole is what the syncer may do with Secrets and ConfigMaps, in the namespaces
// where it binds that role to itself.
func DataRole(instanceID string) string { return "kcp-syncer-" + instanceID + "-data" }

// Source says which namespace of which workspace a downstream namespace is the copy of.
type Source struct {
	Cluster   logicalcluster.Name `json:"cluster"`
	Namespace string              `json:"namespace"`
	// Path is the workspace's path, for people; it may be empty.
	Path string `json:"path,omitempty"`
}

// ParseSource reads a SourceAnnotation.
func ParseSource(annotation string) (Source, error) {
	var s Source
	if err := json.Unmarshal([]byte(annotation), &s); err != nil {
		return Source{}, fmt.Errorf("annotation %s: %q is no source: %w", SourceAnnotation, annotation, err)
	}
	if s.Cluster == "" || s.Namespace == "" {
		return Source{}, fmt.Errorf("annotation %s: %q lacks cluster or namespace", SourceAnnotation, annotation)
	}
	return s, nil
}

// Annotation renders s for SourceAnnotation.
func (s Source) Annotation() string {
	// Three strings always encode.
	b, _ := json.Marshal(s)
	return string(b)
}

// Namespace returns the name of the downstream namespace of (cluster, namespace) on the
// SyncTarget with the given uid: kcp- and 100 bits of a hash in 20 characters.
func Namespace(cluster logicalcluster.Name, namespace string, syncTarget types.UID) string {
	return NamespacePrefix + hash(namespaceHash, string(cluster), namespace, string(syncTarget))
}

// IsTenantNamespace reports whether name can come from Namespace. Names are a cheap
// first test; whose a namespace is, its label and annotation say.
func IsTenantNamespace(name string) bool {
	rest, ok := strings.CutPrefix(name, NamespacePrefix)
	return ok && len(rest) == namespaceHash
}

// Report returns the name of the SyncReport of one object. It is unique per target and
// object within a namespace.
func Report(targetKey, resource, group, name string) string {
	return targetKey + "-" + hash(16, resource+"."+group, name)
}

// Mirror returns the name under which a target's object appears in the workspace.
func Mirror(targetKey, name string) string { return name + mirrorSuffix(targetKey) }

// Mirrored is the inverse of Mirror; false when mirror does not come from targetKey.
func Mirrored(targetKey, mirror string) (string, bool) {
	return strings.CutSuffix(mirror, mirrorSuffix(targetKey))
}

// Event returns the name of the event in the workspace about subject, for the one with
// the given uid in a target's cluster.
func Event(targetKey, subject, uid string) string {
	const maxName, hashLength = 253, 16
	subject = subject[:min(len(subject), maxName-hashLength-1)]
	return strings.TrimRight(subject, "-.") + "." + hash(hashLength, targetKey, uid)
}

func mirrorSuffix(targetKey string) string {
	return "-" + targetKey[max(0, len(targetKey)-5):]
}

// hash returns n characters [0-9a-v] of a hash of parts. The parts are joined by a
// character that occurs in no Kubernetes name, so that different parts never meet.
func hash(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:n]
}
