package server

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/idp"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/gatewaygc"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/heartbeat"
	"github.com/13eedeaf/kcp/pkg/reconciler/hostclaim"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/reconciler/ingress"
	"github.com/13eedeaf/kcp/pkg/reconciler/location"
	"github.com/13eedeaf/kcp/pkg/reconciler/namespace"
	"github.com/13eedeaf/kcp/pkg/reconciler/placement"
	"github.com/13eedeaf/kcp/pkg/reconciler/statusaggregator"
	"github.com/13eedeaf/kcp/pkg/reconciler/workspace"
	"github.com/13eedeaf/kcp/pkg/scheduling"
	kcpadmission "github.com/13eedeaf/kcp/pkg/server/admission"
	"github.com/13eedeaf/kcp/pkg/server/admission/kinds"
	"github.com/13eedeaf/kcp/pkg/server/admission/lifecycle"
	locationadmission "github.com/13eedeaf/kcp/pkg/server/admission/location"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/drain"
	"github.com/13eedeaf/kcp/pkg/server/native"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/steady"
	"github.com/13eedeaf/kcp/pkg/tunnel"
	"github.com/13eedeaf/kcp/pkg/virtual"
	"github.com/13eedeaf/kcp/pkg/workspaces"
	workspaceadmission "github.com/13eedeaf/kcp/pkg/workspaces/admission"
)

// idpPath is where the embedded identity provider is served.
const idpPath = "/idp"

// parts is what the product adds to upstream's server: the workspace tree, admission,
// virtual workspaces, the identity provider and the controllers.
type parts struct {
	url       string
	clients   *clients.Clients
	informers *informers.Set
	index     *workspaces.Index
	home      *workspaces.Home
	admission admission.Interface
	// provider is nil unless the embedded identity provider is on.
	provider *idp.Provider
	login    *authn.LoginDocument

	authenticator authenticator.Request
	authorizer    locationadmission.Authorizer
	wall          clock.PassiveClock
	controllers   []controller
	fleet         *placement.Fleet
	handovers     *handover.Controller
	tunnels       tunnel.Tunnels
	running       sync.WaitGroup
	// fail ends the server with an error; Run sets it.
	fail func(error)
}

// controller runs until its context ends.
type controller interface{ Run(ctx context.Context) }

func newParts(o options.Completed, cfg *config, data content) (*parts, error) {
	p := &parts{url: o.URL, authorizer: cfg.authorizer, wall: o.Clock}
	var err error
	if p.clients, err = clients.New(cfg.loopback()); err != nil {
		return nil, err
	}
	p.informers = informers.NewSet(p.clients)
	p.index = workspaces.NewIndex(p.informers.Workspaces(), workspaces.Live(p.clients))
	p.home = workspaces.NewHome(p.index, workspaces.Create(p.clients))
	p.admission = admission.NewChainHandler(
		workspaceadmission.New(p.index, p.workspaceType(), o.URL, kcpadmission.IsServer),
		lifecycle.New(cfg.registry),
		kcpadmission.NewPlugin(),
		locationadmission.New(p.index, cfg.authorizer),
		kinds.New(clients.Scheme),
	)
	p.controllers = p.newControllers(o.Clock, data)
	return p, p.newLogin(o)
}

func (p *parts) workspaceType() workspaceadmission.GetType {
	return workspaceadmission.NewGetType(p.informers.WorkspaceTypes().Get,
		func(ctx context.Context, cluster logicalcluster.Name, name string, opts metav1.GetOptions) (*tenancyv1alpha1.WorkspaceType, error) {
			return p.clients.WorkspaceTypes(cluster).Get(ctx, name, opts)
		})
}

func (p *parts) newLogin(o options.Completed) error {
	doc := &authn.LoginDocument{Issuer: o.LoginIssuer, ClientID: o.LoginClientID, Scopes: o.LoginScopes, Server: o.URL}
	if o.EmbeddedIdentityProvider {
		var err error
		doc.Issuer, doc.ClientID = o.URL+idpPath, idp.ClientID
		doc.Scopes = []string{"openid", "email", "profile", "groups", "offline_access"}
		p.provider, err = idp.New(idp.Options{Issuer: doc.Issuer, Dir: filepath.Join(o.RootDirectory, "idp")})
		if err != nil {
			return err
		}
	}
	if doc.Issuer != "" {
		p.login = doc
	}
	return nil
}

func (p *parts) newControllers(wall clock.PassiveClock, data content) []controller {
	p.fleet = placement.NewFleet(placement.FleetDeps{
		SyncTargets: p.informers.SyncTargets(),
		Locations:   p.informers.Locations(),
		Assignments: p.informers.Assignments(),
		Path:        p.index.Path,
		Descendants: p.index.Descendants,
		Ancestors:   p.index.Ancestors,
		Resolve:     p.index.Resolve,
		MayUse:      locationadmission.MayUse,
		Clock:       steady.New(wall),
	})
	leases := handover.NewLeases(p.informers.GatewayInstances(), p.fleet.HearingSince, steady.New(wall))
	p.handovers = handover.New(handover.Deps{Clients: p.clients, Informers: p.informers, Fleet: p.fleet, Leases: leases, Clock: wall})
	return []controller{
		workspace.New(workspace.Deps{Clients: p.clients, Informers: p.informers, Index: p.index, Fill: data.fill, Content: data.read}),
		namespace.New(namespace.Deps{Clients: p.clients, Informers: p.informers, Index: p.index}),
		p.handovers,
		heartbeat.New(heartbeat.Deps{Clients: p.clients, Informers: p.informers, Fleet: p.fleet, StageOf: p.handovers.StageOf, Path: p.index.Path, Clock: wall}),
		location.New(location.Deps{Clients: p.clients, Informers: p.informers, Fleet: p.fleet, Clock: wall}),
		placement.New(placement.Deps{Clients: p.clients, Informers: p.informers, Fleet: p.fleet, Clock: wall}),
		gatewaygc.New(gatewaygc.Deps{Clients: p.clients, Informers: p.informers, Leases: leases, Clock: wall}),
		hostclaim.New(hostclaim.Deps{Clients: p.clients, Informers: p.informers, Clock: wall}),
		ingress.New(ingress.Deps{Clients: p.clients, Informers: p.informers, Leases: leases, Clock: wall}),
		statusaggregator.New(statusaggregator.Deps{Clients: p.clients, Informers: p.informers, Clock: wall}),
	}
}

// deps are what upstream's config is completed with.
func (p *parts) deps() deps {
	return deps{
		resolver:      p.index,
		admission:     p.admission,
		authenticator: p.authenticator,
		public:        p.public(),
	}
}

// public serves what anybody may ask without logging in.
func (p *parts) public() *http.ServeMux {
	m := http.NewServeMux()
	m.Handle(authn.LoginPath, authn.NewLoginHandler(p.login))
	if p.provider != nil {
		m.Handle(idpPath+"/", p.provider.Handler())
	}
	return m
}

// mount serves the virtual workspaces; api serves requests that have been authorized.
func (p *parts) mount(ctx context.Context, m mux, api http.Handler) {
	m.Handle(workspaces.HomePattern, p.home.HomeHandler())
	m.HandlePrefix(drain.Prefix, &drain.Handler{
		Authorizer: p.authorizer,
		SyncTarget: func(cluster logicalcluster.Name, name string) (*workloadv1alpha1.SyncTarget, bool) {
			return p.informers.SyncTargets().Get(cluster, "", name)
		},
		Preview: p.handovers.Preview,
		Find:    p.fleet.SyncTarget,
		Path:    p.index.Path,
	})
	m.HandlePrefix(virtual.Prefix, virtual.NewHandler(ctx, virtual.Config{
		Informers:          p.informers,
		Authorizer:         p.authorizer,
		API:                api,
		Resolve:            p.index.Resolve,
		EffectiveLocations: p.effectiveLocations,
		Tunnels:            &p.tunnels,
		Clock:              p.wall,
	}))
}

// podAccess is how workspaces reach their pods' logs and containers.
func (p *parts) podAccess() *native.PodAccess {
	return &native.PodAccess{
		Tunnels:     &p.tunnels,
		Authorizer:  p.authorizer,
		Assignments: p.informers.Assignments().ListNamespace,
	}
}

func (p *parts) effectiveLocations(_ context.Context, cluster logicalcluster.Name) ([]*schedulingv1alpha1.Location, error) {
	ancestors := scheduling.AncestorsOf(p.index.Ancestors(cluster), p.index.Path)
	return scheduling.EffectiveLocations(ancestors, p.informers.Locations().ListCluster), nil
}

// start waits for the API and runs the controllers. It returns when the server is usable:
// every informer holds the state, and what every server has is there.
func (p *parts) start(ctx context.Context, loopback *rest.Config) error {
	if err := waitReady(ctx, loopback); err != nil {
		return err
	}
	p.informers.Start(ctx)
	if !p.informers.WaitForSync(ctx) {
		return ctx.Err()
	}
	for _, c := range p.controllers {
		p.running.Go(func() { c.Run(ctx) })
	}
	return workspaces.Bootstrap(ctx, p.clients, p.url)
}

func (p *parts) wait() {
	p.running.Wait()
	p.informers.Wait()
}
