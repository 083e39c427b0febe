package statusaggregator

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
)

// TestReportsAreForgotten: whatever a syncer makes of one report, memory holds one entry
// for it, and none once it is gone.
func TestReportsAreForgotten(t *testing.T) {
	c := &Controller{byObject: map[Key]map[string]bool{}}
	c.loop = reconciler.New[Key]("status", c)
	report := func(object string) *workloadv1alpha1.SyncReport {
		return &workloadv1alpha1.SyncReport{
			ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "ns", Annotations: map[string]string{logicalcluster.AnnotationKey: "ws"}},
			Spec:       workloadv1alpha1.SyncReportSpec{Target: "t", Version: "v1", Resource: "services", Name: object},
		}
	}
	key := logicalcluster.Key{Cluster: "ws", Namespace: "ns", Name: "r"}
	var last *workloadv1alpha1.SyncReport
	for i := range 5 {
		next := report(fmt.Sprintf("object-%d", i))
		c.reportChanged(informer.Event[*workloadv1alpha1.SyncReport]{Key: key, Old: last, New: next, Added: last == nil})
		last = next
		if len(c.byObject) != 1 || !c.byObject[keyOf(next)]["r"] {
			t.Errorf("after %d changes: %v, want the last object alone", i, c.byObject)
		}
	}
	c.reportChanged(informer.Event[*workloadv1alpha1.SyncReport]{Key: key, Old: last, Deleted: true})
	if len(c.byObject) != 0 {
		t.Errorf("in the end: %v, want nothing", c.byObject)
	}
}
