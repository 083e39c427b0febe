package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
)

// Options are the flags of `kcp gateway`.
type Options struct {
	Kubeconfig    string
	Listen        string
	AdminListen   string
	Addresses     []string
	Name          string
	StateDir      string
	ShutdownGrace time.Duration
	Proxy         proxy.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Listen:        ":8080",
		StateDir:      filepath.Join(".kcp", "gateway"),
		ShutdownGrace: 30 * time.Second,
		Proxy:         proxy.DefaultOptions(),
	}
}

// AddFlags adds the flags to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig whose server is the gateway's virtual workspace (https://HOST/services/gateway). kcp start writes one.")
	fs.StringVar(&o.Listen, "listen", o.Listen, "Address on which to serve HTTP.")
	fs.StringVar(&o.AdminListen, "admin-listen", o.AdminListen, "Address for /healthz, /readyz, /metrics and /table, such as 127.0.0.1:9090. It names tenants: keep it private. Empty for none.")
	fs.StringSliceVar(&o.Addresses, "address", o.Addresses, "IP or host name at which clients reach this gateway, shown as the address of Ingresses. May be repeated. Default: the IP of --listen, or else the first of this machine.")
	fs.StringVar(&o.Name, "name", o.Name, "Name of this gateway, unique among gateways and the same after a restart. Default: the host's name.")
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir, "Directory for the last routing table, with which the gateway starts when the server is away. Empty for none.")
	fs.DurationVar(&o.ShutdownGrace, "shutdown-grace", o.ShutdownGrace, "How long to wait on SIGTERM for requests and streams to end.")
	fs.DurationVar(&o.Proxy.ResponseTimeout, "response-timeout", o.Proxy.ResponseTimeout, "How long an application may take to begin its answer, before the client gets 504.")
	fs.DurationVar(&o.Proxy.DialTimeout, "dial-timeout", o.Proxy.DialTimeout, "How long one attempt to connect to an endpoint may take.")
	fs.DurationVar(&o.Proxy.ProbeInterval, "probe-interval", o.Proxy.ProbeInterval, "Time between probes of an endpoint.")
}

// Config is what a Gateway is made from. Only Options.Config makes one.
type Config struct {
	options    Options
	restConfig *rest.Config
}

// Complete fills in what was left out.
func (o *Options) Complete() error {
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot name the gateway after the host, use --name: %w", err)
		}
		o.Name = strings.ToLower(name)
	}
	if len(o.Addresses) == 0 {
		address, err := defaultAddress(o.Listen)
		if err != nil {
			return fmt.Errorf("cannot find this gateway's address, use --address: %w", err)
		}
		o.Addresses = []string{address}
	}
	return nil
}

// Validate reports all that is wrong with completed options.
func (o *Options) Validate() error {
	var errs []error
	if o.Kubeconfig == "" {
		errs = append(errs, errors.New("--kubeconfig is required: kcp start writes one to gateway.kubeconfig in its root directory"))
	}
	if problems := validation.IsDNS1123Subdomain(o.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--name %q: %s", o.Name, strings.Join(problems, "; ")))
	}
	for _, a := range o.Addresses {
		if problems := validation.IsDNS1123Subdomain(a); net.ParseIP(a) == nil && len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--address %q is neither an IP nor a host name", a))
		}
	}
	for flag, d := range map[string]time.Duration{
		"--response-timeout": o.Proxy.ResponseTimeout, "--dial-timeout": o.Proxy.DialTimeout, "--probe-interval": o.Proxy.ProbeInterval,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be positive", flag, d))
		}
	}
	if o.ShutdownGrace < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-grace %s: must not be negative", o.ShutdownGrace))
	}
	return errors.Join(errs...)
}

// Config returns the configuration of completed and valid options.
func (o *Options) Config() (*Config, error) {
	restConfig, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot use --kubeconfig %q: %w", o.Kubeconfig, err)
	}
	if o.StateDir != "" {
		if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make --state-dir: %w", err)
		}
	}
	return &Config{options: *o, restConfig: restConfig}, nil
}

// statePath is where the last table stands; gateways may share a directory.
func (c *Config) statePath() string {
	if c.options.StateDir == "" {
		return ""
	}
	return filepath.Join(c.options.StateDir, c.options.Name+".json")
}

// defaultAddress is the IP of listen, or the first of this machine if listen has none.
func defaultAddress(listen string) (string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if ipNet, ok := a.(*net.IPNet); ok && ipNet.IP.IsGlobalUnicast() && ipNet.IP.To4() != nil {
			return ipNet.IP.String(), nil
		}
	}
	return "127.0.0.1", nil
}
