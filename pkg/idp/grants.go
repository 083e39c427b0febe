package idp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

const (
	// A grant ends when it was not used for this long.
	grantIdle = 30 * 24 * time.Hour
	// A refresh token that was already exchanged is taken again for this long: the
	// answer may have been lost, or two commands ran at once.
	reuseGrace = 30 * time.Second
	// How long an exchanged token is remembered, so that its reuse ends the grant.
	reuseMemory = 24 * time.Hour
)

var errInvalidRefreshToken = errors.New("refresh token is unknown, expired or was revoked")

// grant is what one sign-in with offline_access allows: fresh tokens without a new one.
type grant struct {
	ID       string         `json:"id"`
	ClientID string         `json:"clientID"`
	Subject  string         `json:"subject"`
	Scopes   []string       `json:"scopes"`
	AMR      []string       `json:"amr,omitempty"`
	AuthTime time.Time      `json:"authTime"`
	Expires  time.Time      `json:"expires"`
	Tokens   []refreshToken `json:"tokens"`
}

// refreshToken is kept as a hash only; whoever reads the file cannot use it.
type refreshToken struct {
	Hash string `json:"hash"`
	// Exchanged is when a successor was first given out.
	Exchanged *time.Time `json:"exchanged,omitempty"`
}

// grants is the persistent set of grants. Each change is on disk before it is answered.
type grants struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	grants []grant
}

func openGrants(path string, now func() time.Time) (*grants, error) {
	g := &grants{path: path, now: now}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the sessions: %w", err)
	}
	if err := json.Unmarshal(data, &g.grants); err != nil {
		return nil, fmt.Errorf("cannot parse the sessions in %q: %w", path, err)
	}
	return g, nil
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// create stores a new grant and returns its first refresh token.
func (g *grants) create(new grant) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := randomToken()
	new.ID = randomToken()
	new.Expires = g.now().Add(grantIdle)
	new.Tokens = []refreshToken{{Hash: hashToken(token)}}
	return token, g.save(append(slices.Clone(g.grants), new))
}

// lookup returns the grant of a token that may be exchanged. A token whose successor
// was given out longer ago than reuseGrace has been stolen, from the client or by it:
// the grant ends (RFC 9700, section 4.14.2).
func (g *grants) lookup(token string) (grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, j := g.find(token)
	if i < 0 {
		return grant{}, errInvalidRefreshToken
	}
	found := g.grants[i]
	exchanged := found.Tokens[j].Exchanged
	if exchanged != nil && g.now().Sub(*exchanged) > reuseGrace {
		if err := g.save(slices.Delete(slices.Clone(g.grants), i, i+1)); err != nil {
			return grant{}, err
		}
		return grant{}, errInvalidRefreshToken
	}
	return found, nil
}

// rotate exchanges a token that lookup accepted for its successor.
func (g *grants) rotate(token string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, j := g.find(token)
	if i < 0 {
		return "", errInvalidRefreshToken
	}
	now := g.now()
	successor := randomToken()
	next := slices.Clone(g.grants)
	tokens := slices.Clone(next[i].Tokens)
	if tokens[j].Exchanged == nil {
		tokens[j].Exchanged = &now
	}
	tokens = slices.DeleteFunc(tokens, func(t refreshToken) bool {
		return t.Exchanged != nil && now.Sub(*t.Exchanged) > reuseMemory
	})
	tokens = append(tokens, refreshToken{Hash: hashToken(successor)})
	next[i].Tokens = tokens
	next[i].Expires = now.Add(grantIdle)
	return successor, g.save(next)
}

// revoke ends every grant for which match is true.
func (g *grants) revoke(match func(grant) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.ContainsFunc(g.grants, match) {
		return nil
	}
	return g.save(slices.DeleteFunc(slices.Clone(g.grants), match))
}

// find returns the indexes of the grant and of its token, or -1. The caller holds mu.
func (g *grants) find(token string) (int, int) {
	hash := hashToken(token)
	for i, candidate := range g.grants {
		if g.now().After(candidate.Expires) {
			continue
		}
		for j, t := range candidate.Tokens {
			if t.Hash == hash {
				return i, j
			}
		}
	}
	return -1, -1
}

// save drops what has expired, writes the file and only then makes next current. The
// caller holds mu.
func (g *grants) save(next []grant) error {
	now := g.now()
	next = slices.DeleteFunc(next, func(candidate grant) bool { return now.After(candidate.Expires) })
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("cannot encode the sessions: %w", err)
	}
	if err := atomicfile.Write(g.path, data, 0o600); err != nil {
		return err
	}
	g.grants = next
	return nil
}
