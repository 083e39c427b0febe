package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/describe"
	"k8s.io/utils/ptr"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	gatewayprocess "github.com/13eedeaf/kcp/pkg/gateway"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/test/framework"
)

// frontDoor is a gateway that runs.
type frontDoor struct {
	t    *testing.T
	url  string
	stop func()
}

// openDoor runs a gateway; its last table stands in dir.
func openDoor(t *testing.T, s *framework.Server, name, dir string) *frontDoor {
	t.Helper()
	o := gatewayprocess.NewOptions()
	o.Kubeconfig, o.Listen, o.Name, o.StateDir = filepath.Join(s.Root, "gateway.kubeconfig"), "127.0.0.1:0", name, dir
	o.Addresses = []string{name + ".example.org"}
	must(t, o.Complete())
	must(t, o.Validate())
	config, err := o.Config()
	must(t, err)
	g, err := gatewayprocess.New(config)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	d := &frontDoor{t: t, url: "http://" + g.Addr().String()}
	d.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("gateway %s: %v", name, err)
		}
		d.stop = func() {}
	}
	t.Cleanup(func() { d.stop() })
	return d
}

// at returns the status of a request: 404 where no rule leads, 503 where one leads to a
// Service that runs nowhere.
func (d *frontDoor) at(ctx context.Context, host, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// hostPerson is a tenant with Ingresses in their namespace default.
type hostPerson struct {
	*person

	path logicalcluster.Name
}

func (p *hostPerson) put(name string, hosts ...string) {
	p.t.Helper()
	client := p.kube(p.path).NetworkingV1().Ingresses("default")
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, host := range hosts {
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/" + p.name(), PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}},
		}})
	}
	_, err := client.Create(p.t.Context(), i, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(p.t.Context(), i, metav1.UpdateOptions{})
	}
	must(p.t, err)
}

// name is the tenant's own, as it stands in the path of their home.
func (p *hostPerson) name() string {
	_, last, _ := strings.Cut(string(p.path), "root:users:")
	name, _, _ := strings.Cut(last, "-")
	return name
}

func (p *hostPerson) remove(name string) {
	p.t.Helper()
	must(p.t, p.kube(p.path).NetworkingV1().Ingresses("default").Delete(p.t.Context(), name, metav1.DeleteOptions{}))
}

// addresses is what kubectl shows as the ADDRESS of an Ingress.
func (p *hostPerson) addresses(ctx context.Context, name string) (string, error) {
	i, err := p.kube(p.path).NetworkingV1().Ingresses("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var out []string
	for _, point := range i.Status.LoadBalancer.Ingress {
		out = append(out, point.IP+point.Hostname)
	}
	return strings.Join(out, ","), nil
}

// describe is what `kubectl describe ingress` shows.
func (p *hostPerson) describe(name string) string {
	p.t.Helper()
	config := rest.CopyConfig(p.config)
	config.Host += p.path.Path().RequestPath()
	d, ok := describe.DescriberFor(schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}, config)
	if !ok {
		p.t.Fatal("kubectl does not describe Ingresses")
	}
	out, err := d.Describe("default", name, describe.DescriberSettings{ShowEvents: true, ChunkSize: 500})
	must(p.t, err)
	return out
}

// served waits until an Ingress has the gateways' addresses and no complaint.
func (p *hostPerson) served(name string) {
	p.t.Helper()
	framework.Eventually(p.t, p.name()+"'s Ingress "+name+" is served", func(ctx context.Context) (bool, string) {
		addresses, err := p.addresses(ctx, name)
		if err != nil || addresses != "gw1.example.org,gw2.example.org" {
			return false, fmt.Sprintf("addresses %q, %v", addresses, err)
		}
		claim, err := p.clients().HostClaims(p.path, "default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || !meta.IsStatusConditionTrue(claim.Status.Conditions, networkingv1alpha1.HostsHeld) {
			return false, fmt.Sprintf("%+v, %v", claim, err)
		}
		described := p.describe(name)
		return !strings.Contains(described, "HostTaken"), described
	})
}

// refused waits until the tenant is told that hosts are taken, and checks in which words.
func (p *hostPerson) refused(name, addresses string, hosts ...string) {
	p.t.Helper()
	quoted := make([]string, 0, len(hosts))
	for _, host := range hosts {
		quoted = append(quoted, fmt.Sprintf("%q", host))
	}
	want := "Not served here, since it is already in use elsewhere: " + strings.Join(quoted, ", ") + ". Choose another host; should this one become free, it is served here by itself."
	framework.Eventually(p.t, p.name()+"'s Ingress "+name+" is refused", func(ctx context.Context) (bool, string) {
		claim, err := p.clients().HostClaims(p.path, "default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(claim.Status.Conditions, networkingv1alpha1.HostsHeld)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "HostTaken" || c.Message != want {
			return false, fmt.Sprintf("condition %+v, want %q", c, want)
		}
		got, err := p.addresses(ctx, name)
		if err != nil || got != addresses {
			return false, fmt.Sprintf("addresses %q, want %q, %v", got, addresses, err)
		}
		described := p.describe(name)
		return strings.Contains(described, "Warning  HostTaken") && strings.Contains(described, want), described
	})
}

// TestIngressHostOfAnotherTenant: one workspace holds a host; the other is told in its own
// workspace, in words that do not name the holder, and is served once the host is free.
// Two gateways say the same throughout, and so do they after restarts of all.
func TestIngressHostOfAnotherTenant(t *testing.T) {
	st := newStage(t)
	s := st.server
	alice, bob := &hostPerson{person: login(t, s, "alice")}, &hostPerson{person: login(t, s, "bob")}
	var aliceID logicalcluster.Name
	alice.path, aliceID = alice.home()
	bob.path, _ = bob.home()
	dir := t.TempDir()
	doors := []*frontDoor{openDoor(t, s, "gw1", dir), openDoor(t, s, "gw2", dir)}
	// answers waits until every gateway leads requests at a host to whom it belongs.
	answers := func(host string, holder *hostPerson) {
		t.Helper()
		for n, door := range doors {
			framework.Eventually(t, fmt.Sprintf("gateway %d at %s", n+1, host), func(ctx context.Context) (bool, string) {
				for _, p := range []*hostPerson{alice, bob} {
					want := http.StatusNotFound
					if p == holder {
						want = http.StatusServiceUnavailable
					}
					if got, err := door.at(ctx, host, "/"+p.name()); got != want {
						return false, fmt.Sprintf("/%s: %d, %v, want %d", p.name(), got, err, want)
					}
				}
				return true, ""
			})
		}
	}

	alice.put("web", "app.example.com")
	alice.served("web")
	bob.put("web", "app.example.com")
	bob.refused("web", "", "app.example.com")
	bob.put("both", "app.example.com", "bob.example.com")
	bob.refused("both", "gw1.example.org,gw2.example.org", "app.example.com")
	answers("app.example.com", alice)
	answers("bob.example.com", bob)

	// Nobody is named.
	claims := bob.clients().HostClaims(bob.path, "default")
	claim, err := claims.Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	events, err := bob.kube(bob.path).CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	all, err := json.Marshal([]any{claim, events})
	must(t, err)
	for _, secret := range []string{"alice", string(aliceID)} {
		if strings.Contains(string(all), secret) {
			t.Errorf("bob reads %q in %s", secret, all)
		}
	}

	// A tenant cannot write it.
	claim.Spec.Hosts[0].Held = true
	_, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	refused(t, "an update", err, "objects of this kind are written by the server only")
	refused(t, "deletion", claims.Delete(t.Context(), "web", metav1.DeleteOptions{}), "objects of this kind are written by the server only")

	// A wildcard.
	bob.put("wild", "*.example.com", "*.example.net")
	bob.served("wild")
	answers("app.example.com", alice)
	answers("other.example.com", bob)
	// It keeps nobody from a host below it.
	answers("www.example.net", bob)
	alice.put("below", "www.example.net")
	alice.served("below")
	answers("www.example.net", alice)
	answers("other.example.net", bob)
	alice.remove("below")
	answers("www.example.net", bob)
	bob.remove("wild")
	answers("other.example.com", nil)

	// An older Ingress that is edited.
	bob.put("later", "later.example.com")
	bob.served("later")
	alice.put("web", "app.example.com", "later.example.com")
	alice.refused("web", "gw1.example.org,gw2.example.org", "later.example.com")
	answers("later.example.com", bob)

	// Restarts.
	st.restart()
	for _, door := range doors {
		door.stop()
	}
	doors = []*frontDoor{openDoor(t, s, "gw1", dir), openDoor(t, s, "gw2", t.TempDir())}
	alice.refused("web", "gw1.example.org,gw2.example.org", "later.example.com")
	bob.refused("web", "", "app.example.com")
	answers("app.example.com", alice)
	answers("later.example.com", bob)

	// The holder lets go.
	alice.remove("web")
	bob.served("web")
	bob.served("both")
	answers("app.example.com", bob)
	alice.put("web", "app.example.com")
	alice.refused("web", "", "app.example.com")
	// What is gone leaves nothing.
	bob.remove("web")
	framework.Eventually(t, "the claim of an Ingress that is gone", func(ctx context.Context) (bool, string) {
		_, err := bob.clients().HostClaims(bob.path, "default").Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	answers("app.example.com", bob)

	// A workspace goes.
	must(t, st.clients.Workspaces("root:users").Delete(t.Context(), strings.TrimPrefix(string(bob.path), "root:users:"), metav1.DeleteOptions{}))
	alice.served("web")
	answers("app.example.com", alice)
}
