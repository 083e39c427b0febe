package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/manifest"
)

const (
	// targetUIDAnnotation of a syncer's service account is the uid of the SyncTarget that
	// it was made for.
	targetUIDAnnotation = "workload.kcp.io/synctarget-uid"
	// tokenLifetime is asked for; the server may grant less.
	tokenLifetime = 365 * 24 * time.Hour
)

// Sync is the use case of "workload sync": it registers a physical cluster.
type Sync struct {
	Console *console.Console
	Session *session.Session
	Now     func() time.Time
}

// SyncInput of Sync.
type SyncInput struct {
	// Name of the SyncTarget.
	Name string
	// Labels are set on the SyncTarget; others that it has stay.
	Labels map[string]string
	// Output is a file for the manifest; empty or "-" means stdout.
	Output string
	// Image of the syncer; without one the manifest runs none.
	Image string
	// Replicas of the syncer; 0 means the manifest's default.
	Replicas int32
	// PodSecurity is the syncer's flag of that name; empty means its default.
	PodSecurity string
	// ServerURL is where the physical cluster reaches the server; empty means the
	// address that the kubeconfig has.
	ServerURL string
	// Kubeconfig is a file for the kubeconfig of a syncer that runs elsewhere.
	Kubeconfig string
}

// Do makes the SyncTarget and an identity that may do nothing but sync it, and prints
// what to apply to the physical cluster. What is there already is kept; each run asks
// for a new token.
func (s *Sync) Do(ctx context.Context, in SyncInput) error {
	if in.ServerURL == "" {
		in.ServerURL = s.Session.Base
	}
	if u, err := url.Parse(in.ServerURL); err != nil || u.Scheme != "https" || u.Host == "" {
		return problem.Usage("--kcp-url %q is not an https URL", in.ServerURL).Hint("kubectl kcp workload sync %s --kcp-url %s", in.Name, s.Session.Base)
	}
	if _, err := podsecurity.ParseLevel(cmp.Or(in.PodSecurity, string(podsecurity.LevelBaseline))); err != nil {
		return problem.Usage("--pod-security %q: %v", in.PodSecurity, err).Hint("kubectl kcp workload sync %s --pod-security %s", in.Name, podsecurity.LevelBaseline)
	}
	// Before anything is made on the server.
	for _, file := range []string{in.Output, in.Kubeconfig} {
		if dir := filepath.Dir(file); file != "" && !isDirectory(dir) {
			return problem.New("cannot write %q: there is no directory %q", file, dir).Hint("make it: mkdir -p %s; kubectl kcp workload sync %s", dir, in.Name)
		}
	}
	target, err := s.target(ctx, in)
	if err != nil {
		return err
	}
	if !target.DeletionTimestamp.IsZero() {
		return problem.New("sync target %q is being deleted", in.Name).Hint("see when it is gone: kubectl kcp workload list")
	}
	cluster := logicalcluster.From(target)
	if cluster == "" {
		return problem.New("the server did not say in which cluster sync target %q stands (annotation %q)", in.Name, logicalcluster.AnnotationKey).
			Hint("see its version: kubectl kcp version")
	}
	if err := s.identity(ctx, target); err != nil {
		return err
	}
	token, err := s.token(ctx, in.Name)
	if err != nil {
		return err
	}
	access, err := s.kubeconfig(in, target, cluster, token)
	if err != nil {
		return err
	}
	out, err := manifest.Render(manifest.Options{
		SyncTargetName: target.Name, SyncTargetUID: target.UID, SyncTargetCluster: cluster,
		Kubeconfig: access, Image: in.Image, Replicas: in.Replicas, PodSecurity: in.PodSecurity, Resources: target.Spec.Resources,
	})
	if err != nil {
		return fmt.Errorf("cannot make the manifest of sync target %q: %w", in.Name, err)
	}
	return s.deliver(in, access, out)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// deliver writes the results; both carry the token.
func (s *Sync) deliver(in SyncInput, access, out []byte) error {
	if in.Kubeconfig != "" {
		if err := atomicfile.Write(in.Kubeconfig, access, 0o600); err != nil {
			return err
		}
		s.Console.Note("Wrote the syncer's kubeconfig to %s.", in.Kubeconfig)
	}
	if in.Output != "" && in.Output != "-" {
		if err := atomicfile.Write(in.Output, out, 0o600); err != nil {
			return err
		}
		s.Console.Note("Sync target %q is registered. Now apply the manifest to the physical cluster: kubectl --kubeconfig CLUSTER apply -f %s", in.Name, in.Output)
		return nil
	}
	if _, err := s.Console.Out.Write(out); err != nil {
		return fmt.Errorf("cannot print the manifest: %w", err)
	}
	s.Console.Note("Sync target %q is registered. Now apply the manifest to the physical cluster: kubectl --kubeconfig CLUSTER apply -f FILE", in.Name)
	return nil
}

// target makes the SyncTarget and sets its labels.
func (s *Sync) target(ctx context.Context, in SyncInput) (*workloadv1alpha1.SyncTarget, error) {
	client, err := s.Session.SyncTargets(s.Session.Path)
	if err != nil {
		return nil, err
	}
	made, err := client.Create(ctx, &workloadv1alpha1.SyncTarget{
		ObjectMeta: metav1.ObjectMeta{Name: in.Name, Labels: in.Labels},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	found, err := client.Get(ctx, in.Name, metav1.GetOptions{})
	if err != nil || len(in.Labels) == 0 {
		return found, err
	}
	want := found.DeepCopy()
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, in.Labels)
	if maps.Equal(found.Labels, want.Labels) {
		return found, nil
	}
	return client.Update(ctx, want, metav1.UpdateOptions{})
}

// roleName is the name of the syncer's ClusterRole and ClusterRoleBinding.
func roleName(target string) string { return "kcp-syncer-" + target }

// identity makes the service account that may sync this one target.
func (s *Sync) identity(ctx context.Context, target *workloadv1alpha1.SyncTarget) error {
	name := target.Name
	namespaces, err := s.Session.Namespaces(s.Session.Path)
	if err != nil {
		return err
	}
	accounts, err := s.Session.ServiceAccounts(s.Session.Path, workloadv1alpha1.SyncersNamespace)
	if err != nil {
		return err
	}
	roles, err := s.Session.ClusterRoles(s.Session.Path)
	if err != nil {
		return err
	}
	bindings, err := s.Session.ClusterRoleBindings(s.Session.Path)
	if err != nil {
		return err
	}
	if err := ensure(ctx, namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workloadv1alpha1.SyncersNamespace}}, nil); err != nil {
		return err
	}
	if err := ensureAccount(ctx, accounts, target); err != nil {
		return err
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{workloadv1alpha1.GroupVersion.Group}, Resources: []string{"synctargets"}, ResourceNames: []string{name}, Verbs: []string{"get", "sync"}},
		{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roleName(name)}, Rules: rules}
	if err := ensure(ctx, roles, role, func(found *rbacv1.ClusterRole) bool {
		same := equality.Semantic.DeepEqual(found.Rules, rules)
		found.Rules = rules
		return same
	}); err != nil {
		return err
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: workloadv1alpha1.SyncersNamespace, Name: name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: roleName(name)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName(name)},
		Subjects:   subjects,
	}
	return ensure(ctx, bindings, binding, func(found *rbacv1.ClusterRoleBinding) bool {
		same := equality.Semantic.DeepEqual(found.Subjects, subjects)
		found.Subjects = subjects
		return same
	})
}

// ensureAccount makes the service account of a target's syncer. One that was made for an
// earlier SyncTarget of that name is replaced: the right to sync goes by name, so that its
// tokens would be good for this target as well, and they end with the account.
func ensureAccount(ctx context.Context, accounts *session.Client[*corev1.ServiceAccount, *corev1.ServiceAccountList], target *workloadv1alpha1.SyncTarget) error {
	found, err := accounts.Get(ctx, target.Name, metav1.GetOptions{})
	switch {
	case err == nil && found.Annotations[targetUIDAnnotation] == string(target.UID):
		return nil
	case err == nil:
		err = accounts.Delete(ctx, target.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(found.UID)}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: target.Name, Namespace: workloadv1alpha1.SyncersNamespace, Annotations: map[string]string{targetUIDAnnotation: string(target.UID)},
	}}, metav1.CreateOptions{})
	return err
}

// ensure creates an object, or brings one that is there into shape. The function
// reports whether it was so already; nil leaves an existing object alone.
func ensure[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](ctx context.Context, client *session.Client[T, L], want T, shape func(T) bool) error {
	_, err := client.Create(ctx, want, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) || shape == nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	found, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil || shape(found) {
		return err
	}
	_, err = client.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

func (s *Sync) token(ctx context.Context, name string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)),
	}}
	got, err := s.Session.RequestToken(ctx, s.Session.Path, workloadv1alpha1.SyncersNamespace, name, request)
	if err != nil {
		return "", err
	}
	expires := got.Status.ExpirationTimestamp
	// A day's tolerance: the server may round.
	if !expires.IsZero() && expires.Sub(s.Now()) < tokenLifetime-24*time.Hour {
		s.Console.Warn("the server grants the syncer's token until %s only; run this command again before that", expires.UTC().Format(time.RFC3339))
	}
	return got.Status.Token, nil
}

// kubeconfig is the syncer's access to its virtual workspace.
func (s *Sync) kubeconfig(in SyncInput, target *workloadv1alpha1.SyncTarget, cluster logicalcluster.Name, token string) ([]byte, error) {
	server, err := url.JoinPath(in.ServerURL, "services/syncer", string(cluster), target.Name, string(target.UID))
	if err != nil {
		return nil, problem.Usage("--kcp-url %q is not a URL", in.ServerURL).Because(err)
	}
	ca, err := s.Session.CAData()
	if err != nil {
		return nil, err
	}
	if s.Session.Insecure() {
		s.Console.Warn("the syncer will not check the server's certificate either")
	}
	const name = "kcp"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca, InsecureSkipTLSVerify: s.Session.Insecure()}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the syncer's kubeconfig: %w", err)
	}
	return data, nil
}
