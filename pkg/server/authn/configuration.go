package authn

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
)

// EmbeddedPrefix begins the names of the embedded provider's users and groups.
const EmbeddedPrefix = "oidc:"

// parseConfiguration reads an AuthenticationConfiguration of any served version, and
// refuses unknown fields.
func parseConfiguration(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	obj, gvk, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("want an AuthenticationConfiguration, got %q", gvk.Kind)
	}
	return config, nil
}

// embeddedConfiguration maps the embedded provider's claims. preferred_username is
// unique there, and sub is the same for as long as the user exists.
func embeddedConfiguration(e EmbeddedIssuer) apiserver.JWTAuthenticator {
	prefix := EmbeddedPrefix
	return apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: e.URL, Audiences: []string{e.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "preferred_username", Prefix: &prefix},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &prefix},
			UID:      apiserver.ClaimOrExpression{Claim: "sub"},
		},
	}
}

// validate does what upstream does, and checks that no issuer can name the users or
// groups of another.
func validate(config *apiserver.AuthenticationConfiguration, reserved []string) error {
	if err := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, reserved).ToAggregate(); err != nil {
		return err
	}
	for i, a := range config.JWT {
		for _, b := range config.JWT[i+1:] {
			if err := disjoint("username", a, b, a.ClaimMappings.Username, b.ClaimMappings.Username); err != nil {
				return err
			}
			if err := disjoint("groups", a, b, a.ClaimMappings.Groups, b.ClaimMappings.Groups); err != nil {
				return err
			}
		}
	}
	return nil
}

// disjoint compares the prefixes of two mappings by claim. What an expression makes is
// known only at the request, see foreignPrefixes.
func disjoint(what string, a, b apiserver.JWTAuthenticator, ma, mb apiserver.PrefixedClaimOrExpression) error {
	pa, okA := prefixOf(ma)
	pb, okB := prefixOf(mb)
	if !okA || !okB || (!strings.HasPrefix(pa, pb) && !strings.HasPrefix(pb, pa)) {
		return nil
	}
	return fmt.Errorf("claimMappings.%s.prefix of issuers %q (%q) and %q (%q) overlap: one issuer could speak for the other's; give each a prefix of its own",
		what, a.Issuer.URL, pa, b.Issuer.URL, pb)
}

func prefixOf(m apiserver.PrefixedClaimOrExpression) (string, bool) {
	if m.Claim == "" {
		return "", false
	}
	if m.Prefix == nil {
		return "", true
	}
	return *m.Prefix, true
}

// prefixes of names that belong to other issuers.
type prefixes struct{ username, groups []string }

// foreignPrefixes returns the non-empty prefixes of all issuers but the one at own.
func foreignPrefixes(all []apiserver.JWTAuthenticator, own int) prefixes {
	var p prefixes
	for i, jwt := range all {
		if i == own {
			continue
		}
		if prefix, ok := prefixOf(jwt.ClaimMappings.Username); ok && prefix != "" {
			p.username = append(p.username, prefix)
		}
		if prefix, ok := prefixOf(jwt.ClaimMappings.Groups); ok && prefix != "" {
			p.groups = append(p.groups, prefix)
		}
	}
	return p
}

// match returns the first name of u that has one of the prefixes.
func (p prefixes) match(u user.Info) string {
	for _, prefix := range p.username {
		if strings.HasPrefix(u.GetName(), prefix) {
			return u.GetName()
		}
	}
	for _, prefix := range p.groups {
		for _, g := range u.GetGroups() {
			if strings.HasPrefix(g, prefix) {
				return g
			}
		}
	}
	return ""
}
