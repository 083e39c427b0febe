package workspaces

import (
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
)

// EncodeOwner returns the owner annotation's value for a user: name, uid and groups.
// Extra is left out, since authenticators may put credentials there.
func EncodeOwner(u user.Info) (string, error) {
	data, err := json.Marshal(authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()})
	if err != nil {
		return "", fmt.Errorf("cannot encode user %q: %w", u.GetName(), err)
	}
	return string(data), nil
}

// OwnerOf returns who created a Workspace; the zero value where it does not say.
func OwnerOf(ws metav1.Object) (authenticationv1.UserInfo, error) {
	var owner authenticationv1.UserInfo
	value := ws.GetAnnotations()[tenancyv1alpha1.OwnerAnnotationKey]
	if value == "" {
		return owner, nil
	}
	if err := json.Unmarshal([]byte(value), &owner); err != nil {
		return owner, fmt.Errorf("cannot read annotation %s of workspace %q: %w", tenancyv1alpha1.OwnerAnnotationKey, ws.GetName(), err)
	}
	return owner, nil
}
