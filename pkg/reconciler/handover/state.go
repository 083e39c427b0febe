package handover

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// State is all that a plan for one namespace depends on.
type State struct {
	// Deleting is true while the namespace is being deleted.
	Deleting    bool
	Assignments []*schedulingv1alpha1.Assignment
	// Workloads are the objects that a handover waits for.
	Workloads []Workload
	Reports   []*workloadv1alpha1.SyncReport
	// HasIngress is true when gateways have a say.
	HasIngress bool
	// HasEndpoints is true when any target has mirrored up an endpoint of a Service that
	// an Ingress names. Without one there is no traffic, and nothing to confirm.
	HasEndpoints   bool
	Gateways       []*networkingv1alpha1.GatewayInstance
	GatewayReports []*networkingv1alpha1.GatewayReport
	// Target finds an existing target, nil when its SyncTarget is gone.
	Target func(key string) *scheduling.Target
	// Placement names the Placement that decides; DrainDeadline and Toleration (of
	// silence, zero or less where it sets no limit) are its.
	Placement     string
	DrainDeadline time.Duration
	Toleration    time.Duration
	// DeadlineOf says when the deadline of a draining Assignment ends, which is what stands
	// there unless the clock was set meanwhile. Nil: what stands there.
	DeadlineOf func(*schedulingv1alpha1.Assignment) time.Time
	// ListeningSince is when the server began to hear heartbeats.
	ListeningSince time.Time
	Now            time.Time
}

func (s *State) deadlineOf(a *schedulingv1alpha1.Assignment) time.Time {
	if s.DeadlineOf == nil {
		return a.Spec.DrainDeadline.Time
	}
	return s.DeadlineOf(a)
}

// Workload is an object that a handover waits for.
type Workload struct {
	Resource schema.GroupResource
	Object   *unstructured.Unstructured
}

// objectKey identifies an object of a namespace, as reports name it.
type objectKey struct{ group, resource, name string }

func workloadKey(w Workload) objectKey {
	return objectKey{w.Resource.Group, w.Resource.Resource, w.Object.GetName()}
}

func reportKey(r *workloadv1alpha1.SyncReport) objectKey {
	return objectKey{r.Spec.Group, r.Spec.Resource, r.Spec.Name}
}

// Stages of a namespace on a target that it has to leave; DrainNamespace shows them.
const (
	StagePending           = "Pending"
	StageApplying          = "Applying"
	StageWaitingForPods    = "WaitingForPods"
	StageWaitingForGateway = "WaitingForGateway"
	StageDraining          = "Draining"
	StageRemoving          = "Removing"
	StageBlocked           = "Blocked"
)

// Stage is where the move of a namespace off a target stands.
type Stage struct {
	Stage   string
	Message string
}

// earlier returns the earlier of two instants, of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
