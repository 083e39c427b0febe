package syncer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/13eedeaf/kcp/test/physical/controlplane"
)

// physicalDir, when set, makes the test binary run the physical cluster's control plane
// instead of tests: it may run only once in a process, and is killed with it.
const physicalDir = "SYNCER_TEST_PHYSICAL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(physicalDir); dir != "" {
		if err := controlplane.Run(context.Background(), physicalOptions(dir)); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer func() {
		if physical.stop != nil {
			physical.stop()
		}
	}()
	return m.Run()
}

// physical is the one physical cluster of all tests of this package; they differ in
// SyncTargets and namespaces.
var physical struct {
	once   sync.Once
	config *rest.Config
	err    error
	stop   func()
}

// physicalCluster returns an admin's access to a real Kubernetes control plane without
// nodes.
func physicalCluster(t *testing.T) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Kubernetes control plane")
	}
	physical.once.Do(func() { physical.config, physical.err = startPhysical() })
	if physical.err != nil {
		t.Fatal(physical.err)
	}
	return physical.config
}

func physicalOptions(dir string) controlplane.Options {
	port, _ := strconv.Atoi(filepath.Base(dir))
	return controlplane.Options{
		DataDir: filepath.Join(dir, "data"), PKIDir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Address: "127.0.0.1", Port: port, EtcdPort: port + 1,
		// A range of this machine, since its first address is listened on.
		ServiceCIDR: fmt.Sprintf("127.%d.%d.0/24", 16+port%200, port/256),
	}
}

// freePort returns a port that is free together with the two after it, for now.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		free := true
		for _, p := range []int{port + 1, port + 2} {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no three free ports in a row")
}

func startPhysical() (*rest.Config, error) {
	root, err := os.MkdirTemp("", "syncer-test-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, strconv.Itoa(port))
	config, err := writePKI(dir, port)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(root, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), physicalDir+"="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	physical.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(root)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		// The controllers make it, so both they and the API server are ready.
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return config, nil
		}
		select {
		case <-ctx.Done():
			tail, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("the physical cluster did not start: %w\n%s", err, tail[max(0, len(tail)-4000):])
		case <-ticker.C:
		}
	}
}

// writePKI writes what controlplane.Run reads, and returns an admin's access.
func writePKI(dir string, port int) (*rest.Config, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := func(name string, serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	ca := template("ca", 1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	serving := template("kube-apiserver", 2)
	serving.ExtKeyUsage, serving.IPAddresses, serving.DNSNames = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	admin := template("admin", 3)
	admin.ExtKeyUsage, admin.Subject.Organization = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []string{"system:masters"}

	files := map[string][]byte{}
	add := func(cert, key string, t *x509.Certificate) error {
		k := caKey
		if t != ca {
			if k, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
				return err
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, t, ca, k.Public(), caKey)
		if err != nil {
			return err
		}
		keyDER, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			return err
		}
		files[cert] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		files[key] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
		return nil
	}
	if err := add(controlplane.CACert, controlplane.ServiceAccountKey, ca); err != nil {
		return nil, err
	}
	if err := add(controlplane.ServingCert, controlplane.ServingKey, serving); err != nil {
		return nil, err
	}
	if err := add(controlplane.AdminCert, controlplane.AdminKey, admin); err != nil {
		return nil, err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port), CertificateAuthorityData: files[controlplane.CACert]}
	kubeconfig.AuthInfos["a"] = &clientcmdapi.AuthInfo{ClientCertificateData: files[controlplane.AdminCert], ClientKeyData: files[controlplane.AdminKey]}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	kubeconfig.CurrentContext = "x"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}
