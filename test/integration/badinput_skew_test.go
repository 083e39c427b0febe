package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/version"
	"github.com/13eedeaf/kcp/test/framework"
)

// TestLesson28VersionSkew: a syncer older or newer than the server supports is refused with
// both versions and the remedy, its SyncTarget says so to whoever looks after it, and all is
// well again once one that fits speaks.
func TestLesson28VersionSkew(t *testing.T) {
	s := framework.Start(t)
	admin := login(t, s, "alice")
	own, ownID := admin.home()
	a := newAgent(t, s, ownID, "edge")
	targets := admin.clients().SyncTargets(own)
	beat := func(peer version.Peer) error {
		config := rest.CopyConfig(a.config)
		config.WrapTransport = nil
		config.Wrap(introduce(peer))
		patch := fmt.Appendf(nil, `{"status":{"lastSyncerHeartbeatTime":%q,"syncerVersion":%q}}`, time.Now().UTC().Format(time.RFC3339), peer.Build)
		_, err := dynamic.NewForConfigOrDie(config).Resource(clients.SyncTargetsResource).Patch(t.Context(), "edge", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	conditions := func(what string, want ...string) {
		t.Helper()
		framework.Eventually(t, what, func(ctx context.Context) (bool, string) {
			st, err := targets.Get(ctx, "edge", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			ready := meta.FindStatusCondition(st.Status.Conditions, workloadv1alpha1.SyncTargetReady)
			skew := meta.FindStatusCondition(st.Status.Conditions, workloadv1alpha1.SyncTargetVersionSkew)
			if ready == nil || skew == nil {
				return false, fmt.Sprintf("%+v", st.Status)
			}
			got := fmt.Sprintf("Ready=%s/%s: %s\nVersionSkew=%s/%s: %s", ready.Status, ready.Reason, ready.Message, skew.Status, skew.Reason, skew.Message)
			for _, w := range want {
				if !strings.Contains(got, w) {
					return false, got
				}
			}
			return true, got
		})
	}
	older := version.Peer{Build: "v0.0.1", Protocol: version.OldestSyncProtocol - 1}
	newer := version.Peer{Build: "v9.9.9", Protocol: version.SyncProtocol + 1}
	refused := func(peer version.Peer, want string) {
		t.Helper()
		err := beat(peer)
		if !apierrors.IsBadRequest(err) || !apierrors.HasStatusCause(err, version.SkewCause) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), version.Get().Version) || !strings.Contains(err.Error(), "update the s") {
			t.Errorf("a syncer of %s: %v, want 400 %q", peer, err, want)
		}
	}

	const tooOld, tooNew = `The syncer (version "v0.0.1", sync protocol 0) is older than this server`, `The syncer (version "v9.9.9", sync protocol 2) is newer than this server`
	// The first word may come before the server has taken notice of the SyncTarget itself.
	framework.Eventually(t, "what the syncer said is noted", func(ctx context.Context) (bool, string) {
		refused(older, tooOld)
		st, err := targets.Get(ctx, "edge", metav1.GetOptions{})
		return err == nil && st.Status.SyncerVersion == older.Build, fmt.Sprint(err)
	})
	conditions("the SyncTarget says why it is not ready", "Ready=False/SyncerRefused: "+tooOld, "VersionSkew=True/SyncerRefused: "+tooOld, "kubectl kcp workload sync edge")
	refused(newer, tooNew)
	conditions("it says what the last one was", "Ready=False/SyncerRefused: "+tooNew, "VersionSkew=True/SyncerRefused: "+tooNew)
	st, err := targets.Get(t.Context(), "edge", metav1.GetOptions{})
	must(t, err)
	if st.Status.LastHeartbeatTime != nil || st.Status.SyncerVersion != newer.Build {
		t.Errorf("a heartbeat that was refused has changed more than the version: %+v", st.Status)
	}

	must(t, beat(version.Self()))
	conditions("one that fits is heard", "Ready=True/Heartbeating", "VersionSkew=False/Supported")
	// A replica that is being replaced does not speak for the one at work.
	refused(older, tooOld)
	must(t, beat(version.Self()))
	conditions("one that fits is heard still", "Ready=True/Heartbeating", "VersionSkew=False/Supported")
}
