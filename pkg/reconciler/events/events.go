// Package events tells tenants, by an Event on their own object, what the server cannot
// do for them. One trouble of one object is one Event.
//
// Warn is for when a trouble begins, changes or is reported again, and never for a timer:
// a trouble that lasts must cost nothing. What lasts stands in the status of an object;
// an Event is kept for the time that --event-ttl says.
package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// repeat is how often at most an Event is counted up whose trouble is reported again.
const repeat = 5 * time.Minute

// Recorder writes Events.
type Recorder struct {
	Clients *clients.Clients
	Clock   clock.PassiveClock
	// Component is the source that Events name.
	Component string
}

// Warning is one trouble.
type Warning struct {
	Object *unstructured.Unstructured
	// Identity tells the troubles of one object apart.
	Identity        string
	Reason, Message string
}

func (r *Recorder) in(obj *unstructured.Unstructured) corev1client.EventInterface {
	return r.Clients.Core(logicalcluster.From(obj)).Events(obj.GetNamespace())
}

func nameOf(obj *unstructured.Unstructured, identity string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(obj.GetUID()), identity}, "\x00")))
	return fmt.Sprintf("%.200s.%s", obj.GetName(), hex.EncodeToString(sum[:8]))
}

// Warn writes the Event of a trouble, or counts it up.
func (r *Recorder) Warn(ctx context.Context, w Warning) error {
	name, now, events := nameOf(w.Object, w.Identity), metav1.NewTime(r.Clock.Now()), r.in(w.Object)
	old, err := events.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if old.Message == w.Message && now.Sub(old.LastTimestamp.Time) < repeat {
			return nil
		}
		old.Message, old.LastTimestamp = w.Message, now
		old.Count++
		if _, err := events.Update(ctx, old, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot update event %q: %w", name, err)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot get event %q: %w", name, err)
	}
	_, err = events.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Object.GetNamespace()},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: w.Object.GetAPIVersion(), Kind: w.Object.GetKind(), Namespace: w.Object.GetNamespace(), Name: w.Object.GetName(),
			UID: w.Object.GetUID(), ResourceVersion: w.Object.GetResourceVersion(),
		},
		Type: corev1.EventTypeWarning, Reason: w.Reason, Message: w.Message,
		Source:         corev1.EventSource{Component: r.Component},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	// A namespace or workspace that is being deleted takes nothing new.
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot create event %q: %w", name, err)
	}
	return nil
}

// Clear removes the Event of a trouble that is over.
func (r *Recorder) Clear(ctx context.Context, obj *unstructured.Unstructured, identity string) error {
	name := nameOf(obj, identity)
	if err := r.in(obj).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete event %q: %w", name, err)
	}
	return nil
}
