package idp

import (
	"context"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// StoreDeviceAuthorization begins a device flow (RFC 8628).
func (s *storage) StoreDeviceAuthorization(_ context.Context, clientID, deviceCode, userCode string, expires time.Time, scopes []string) error {
	if _, taken := s.userCodes.get(userCode); taken {
		return op.ErrDuplicateUserCode
	}
	state := op.DeviceAuthorizationState{ClientID: clientID, Scopes: scopes, Expires: expires}
	// The state outlives its end a little, so that the device is told "expired".
	if !s.devices.put(deviceCode, state, deviceLifetime+time.Minute) ||
		!s.userCodes.put(userCode, deviceCode, deviceLifetime) {
		return errTooManySignIns
	}
	return nil
}

// GetDeviceAuthorizatonState (the library's spelling) is what the device polls. Once the
// user has decided, the state is given out once.
func (s *storage) GetDeviceAuthorizatonState(_ context.Context, clientID, deviceCode string) (*op.DeviceAuthorizationState, error) {
	state, ok := s.devices.get(deviceCode)
	if !ok || state.ClientID != clientID {
		return nil, errNotFound
	}
	if state.Done || state.Denied {
		if state, ok = s.devices.take(deviceCode); !ok {
			return nil, errNotFound
		}
	}
	return &state, nil
}

// decideDevice records what the user decided; u is nil when they refused. False when
// the typed code is unknown, expired or already decided.
func (s *storage) decideDevice(userCode string, u *user) bool {
	deviceCode, ok := s.userCodes.take(normalizeUserCode(userCode))
	if !ok {
		return false
	}
	return s.devices.update(deviceCode, func(state *op.DeviceAuthorizationState) {
		if u == nil {
			state.Denied = true
			return
		}
		state.Done, state.Subject, state.AMR, state.AuthTime = true, u.subject(), []string{"pwd"}, s.now()
	})
}

// normalizeUserCode lets people type a code in lower case, with or without its dash.
func normalizeUserCode(code string) string {
	letters := strings.Map(func(r rune) rune {
		if strings.ContainsRune(op.CharSetBase20, r) {
			return r
		}
		return -1
	}, strings.ToUpper(code))
	if half := op.UserCodeBase20.DashInterval; len(letters) == 2*half {
		return letters[:half] + "-" + letters[half:]
	}
	return letters
}
