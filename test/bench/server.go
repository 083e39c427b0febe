package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// tenantUser is the ordinary user as whom tenants' requests are sent.
const tenantUser = "bench-tenant"

// readyTimeout bounds a start; it is no figure.
const readyTimeout = 2 * time.Minute

// apiServer is the product's server or a stock one.
type apiServer struct {
	*process
	name string
	dir  string
	url  string
	// admin is system:masters, tenant an ordinary user.
	admin, tenant *client
	etcd          *clientv3.Client
	// adminKubeconfig has no cluster in its server's path.
	adminKubeconfig string

	// launch starts the process and returns how to know that it is ready.
	launch func(ctx context.Context) (*process, func(context.Context) error, error)
	// namespace is where tenant number i has a namespace: its own with an empty name, or
	// another one, which has to be made.
	namespace func(i int, other string) (path, name string)
	// heap measures live memory; nil where the server does not tell.
	heap func(ctx context.Context) (float64, error)
}

// run starts the server and returns how long it took until it was ready.
func (s *apiServer) run(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	p, ready, err := s.launch(ctx)
	if err != nil {
		return 0, err
	}
	s.process = p
	err = ready(ctx)
	took := time.Since(begin)
	if err != nil {
		p.stop()
		return 0, errors.Join(err, p.ended())
	}
	return took, nil
}

func (s *apiServer) close() {
	if s == nil {
		return
	}
	if s.etcd != nil {
		_ = s.etcd.Close()
	}
	s.process.stop()
}

// connect makes the clients from the keys in pkiDir, which both kinds of server have.
func (s *apiServer) connect(pkiDir, etcdEndpoint string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, "admin.crt"), filepath.Join(pkiDir, "admin.key"))
	if err != nil {
		return err
	}
	ca := filepath.Join(pkiDir, "ca.crt")
	admin := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: ca, CertFile: filepath.Join(pkiDir, "admin.crt"), KeyFile: filepath.Join(pkiDir, "admin.key")}}
	if s.admin, err = newClient(admin, s.url); err != nil {
		return err
	}
	issuer, err := x509.ParseCertificate(pair.Certificate[len(pair.Certificate)-1])
	if err != nil {
		return err
	}
	cert, key, err := issue(filepath.Join(pkiDir, "client-ca.key"), issuer, tenantUser)
	if err != nil {
		return err
	}
	tenant := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: ca, CertData: cert, KeyData: key}}
	if s.tenant, err = newClient(tenant, s.url); err != nil {
		return err
	}
	s.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{etcdEndpoint}, DialTimeout: 10 * time.Second})
	return err
}

// issue signs a client certificate with the authority whose key is in caKeyFile.
func issue(caKeyFile string, ca *x509.Certificate, user string) (certPEM, keyPEM []byte, err error) {
	data, err := os.ReadFile(caKeyFile)
	if err != nil {
		return nil, nil, err
	}
	caKey, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use %q: %w", caKeyFile, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot sign a certificate for %q: %w", user, err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, err
}

// revision is etcd's: it grows by one with each transaction that writes.
func (s *apiServer) revision(ctx context.Context) (int64, error) {
	resp, err := s.etcd.Get(ctx, "none", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// idle returns once etcd has not been written for a while.
func (s *apiServer) idle(ctx context.Context) error {
	const quiet = time.Second
	last, err := s.revision(ctx)
	if err != nil {
		return err
	}
	since := time.Now()
	return eventually(ctx, s.name+" is idle", 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		now, err := s.revision(ctx)
		if err != nil {
			return false, err
		}
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quiet, nil
	})
}

// writes counts the keys written after revision from, by resource.
func (s *apiServer) writes(ctx context.Context, from int64) (map[string]int, error) {
	counts := map[string]int{}
	err := s.events(ctx, from, func(e *clientv3.Event) { counts[resourceOf(string(e.Kv.Key))]++ })
	return counts, err
}

// events calls f for each change of a key from after revision from until now.
func (s *apiServer) events(ctx context.Context, from int64, f func(*clientv3.Event)) error {
	to, err := s.revision(ctx)
	if err != nil || to <= from {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range s.etcd.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(from+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify()) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, e := range resp.Events {
			if e.Kv.ModRevision <= to {
				f(e)
			}
		}
		if len(resp.Events) == 0 || resp.Events[len(resp.Events)-1].Kv.ModRevision >= to {
			return nil
		}
	}
	return ctx.Err()
}

// resourceOf returns what a key is of: /registry/<resource>/… or /registry/<group>/<resource>/….
func resourceOf(key string) string {
	parts := strings.Split(strings.Trim(key, "/"), "/")
	if len(parts) > 2 && strings.Contains(parts[1], ".") {
		return parts[2]
	}
	if len(parts) > 1 {
		return parts[1]
	}
	return key
}

// metrics reads /metrics: the number of series, and one gauge.
func (s *apiServer) metrics(ctx context.Context, gauge string) (series int, value float64, err error) {
	err = s.eachSeries(ctx, func(line string) error {
		series++
		rest, ok := strings.CutPrefix(line, gauge+" ")
		if !ok {
			return nil
		}
		var err error
		value, err = strconv.ParseFloat(rest, 64)
		return err
	})
	return series, value, err
}

// largest returns the largest value of the series whose names start with prefix.
func (s *apiServer) largest(ctx context.Context, prefix string) (float64, error) {
	largest := 0.0
	err := s.eachSeries(ctx, func(line string) error {
		if !strings.HasPrefix(line, prefix) {
			return nil
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		largest = max(largest, value)
		return err
	})
	return largest, err
}

// eachSeries calls f for each line of /metrics that is a series.
func (s *apiServer) eachSeries(ctx context.Context, f func(line string) error) error {
	data, err := s.admin.raw(ctx, "GET", "/metrics", "", nil)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); line != "" && line[0] != '#' {
			if err := f(line); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// configMaps is the path of a tenant's ConfigMaps.
func (s *apiServer) configMaps(i int, other string) string {
	path, name := s.namespace(i, other)
	return path + "/" + name + "/configmaps"
}

// freePort returns a port that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
