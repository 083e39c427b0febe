package pki

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

// Names of the kubeconfigs under the server's root directory.
const (
	AdminKubeconfig   = "admin.kubeconfig"
	GatewayKubeconfig = "gateway.kubeconfig"
)

// WriteKubeconfigs writes root/admin.kubeconfig (contexts root, the current one, and
// base, which has no /clusters prefix) and root/gateway.kubeconfig. server is the
// server's URL without a path, such as https://kcp.example.com:6443; caPEM is what
// clients verify it with, usually p.CAPEM. Files that would not change are left alone.
func (p *PKI) WriteKubeconfigs(root, server string, caPEM []byte) error {
	server = strings.TrimSuffix(server, "/")
	admin := kubeconfig(AdminUser, p.Admin, caPEM, map[string]string{
		"root": server + "/clusters/root",
		"base": server,
	})
	admin.CurrentContext = "root"
	gateway := kubeconfig(GatewayUser, p.Gateway, caPEM, map[string]string{
		"gateway": server + "/services/gateway",
	})
	gateway.CurrentContext = "gateway"
	for name, config := range map[string]*clientcmdapi.Config{AdminKubeconfig: admin, GatewayKubeconfig: gateway} {
		data, err := clientcmd.Write(*config)
		if err != nil {
			return fmt.Errorf("cannot encode %q: %w", name, err)
		}
		if _, err := atomicfile.WriteIfChanged(filepath.Join(root, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig has one cluster and context per entry of servers, all with the same user.
func kubeconfig(user string, cert ClientCert, caPEM []byte, servers map[string]string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cert.CertPEM,
		ClientKeyData:         cert.KeyPEM,
	}
	for name, server := range servers {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	}
	return config
}
