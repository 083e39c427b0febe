package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// TargetKey returns the opaque key under which tenants meet a SyncTarget: 12 lower-case
// characters, a DNS label that starts with a letter, the same for the same object and
// different for one recreated under the same name.
func TargetKey(cluster logicalcluster.Name, uid types.UID) string {
	sum := sha256.Sum256([]byte(string(cluster) + "/" + string(uid)))
	return "t" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:11]
}
