package syncer

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

var eventsGVR = corev1.SchemeGroupVersion.WithResource("events")

const (
	eventWorkers = 2
	// eventAge is how long before the session an event may have happened to be told: the
	// session before this one told what is older.
	eventAge = 5 * time.Minute
	// eventInterval is how often an event that repeats is told again.
	eventInterval = 10 * time.Second
	// eventPatience is how long an event waits for what it is about to be mirrored.
	eventPatience = 30 * time.Second
	// A namespace may tell so many events at once, and so many a second in the long run.
	eventBurst  = 50
	eventRate   = 0.5
	eventsPause = 5 * time.Second
	// eventLifetime is how long clusters commonly keep events.
	eventLifetime = time.Hour
)

// eventKey is an event downstream, by its name there.
type eventKey struct {
	namespaceKey
	Name string
}

func (k eventKey) String() string { return "events " + k.key(k.Name).String() }

// reconcileEvent shows an event about an object downstream in the workspace, about what
// stands for the object there.
func (s *session) reconcileEvent(ctx context.Context, key eventKey) (reconciler.Result, error) {
	namespace := s.id.namespace(key.namespaceKey)
	events, telling, ok := s.down.events(namespace)
	if _, active := s.assigned(key.namespaceKey); !active || !ok {
		return reconciler.Result{}, nil
	}
	obj, ok := events.get(namespace, key.Name)
	if !ok {
		telling.told.Delete(key.Name)
		return reconciler.Result{}, nil
	}
	event := &corev1.Event{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, event); err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot decode %s: %w", key, err)
	}
	seen := transform.LastSeen(event)
	if seen.Before(s.began.Add(-eventAge)) {
		return reconciler.Result{}, nil
	}
	if last, ok := telling.told.Load(key.Name); ok {
		if last.(told).version == event.ResourceVersion {
			return reconciler.Result{}, nil
		}
		if wait := eventInterval - time.Since(last.(told).at); wait > 0 {
			return reconciler.Result{RequeueAfter: wait}, nil
		}
	}
	involved := event.InvolvedObject
	subject, ok := s.inWorkspace(key.namespaceKey, schema.FromAPIVersionAndKind(involved.APIVersion, involved.Kind), involved.Name)
	switch {
	case !ok && time.Since(seen) < eventPatience:
		return reconciler.Result{RequeueAfter: later}, nil
	case !ok:
		return reconciler.Result{}, nil
	case !telling.limit.TryAccept():
		return reconciler.Result{RequeueAfter: eventsPause}, nil
	}
	if err := s.tell(ctx, key, transform.MirrorEvent(event, subject, s.id.targetKey, s.wording(key.namespaceKey, involved, subject))); err != nil {
		return reconciler.Result{}, err
	}
	telling.told.Store(key.Name, told{version: event.ResourceVersion, at: time.Now()})
	return reconciler.Result{}, nil
}

func (s *session) tell(ctx context.Context, key eventKey, event *corev1.Event) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", key, err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	client, err := s.up.namespaced(eventsGVR, key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	// Applied, so that after a restart it is not told twice.
	_, err = client.Apply(ctx, event.Name, u, metav1.ApplyOptions{FieldManager: names.FieldManager, Force: true})
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("cannot mirror %s: %w", key, err)
	}
	return nil
}

// word matches what can be the name of a node.
var word = regexp.MustCompile(`[a-z0-9]([a-z0-9.-]*[a-z0-9])?`)

// wording returns what puts a message into the workspace's words: its namespace, the
// object's name there, and no names of nodes.
func (s *session) wording(key namespaceKey, involved corev1.ObjectReference, subject *unstructured.Unstructured) func(string) string {
	pairs := []string{s.id.namespace(key), key.Namespace}
	if involved.Kind == resources.Pods.Kind && involved.Name != subject.GetName() {
		pairs = append(pairs, involved.Name, subject.GetName())
	}
	names := strings.NewReplacer(pairs...)
	return func(message string) string {
		return word.ReplaceAllStringFunc(names.Replace(message), func(w string) string {
			if s.down.nodes.has("", w) {
				return "a node"
			}
			return w
		})
	}
}
