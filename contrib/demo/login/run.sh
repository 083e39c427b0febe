#!/usr/bin/env bash
# Logging in: in a browser, by a code on another device, and not again after that: tokens
# renew themselves, also when the server was killed in between. No cluster is needed, and
# no root. Every claim is an assertion.
# shellcheck disable=SC2034,SC2154
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NETNS=
# shellcheck source=../lib/demo.sh
. "$here/../lib/demo.sh"
# shellcheck source=../lib/server.sh
. "$here/../lib/server.sh"

# Questions that the assertions ask.
login_file() { ls "$HOME"/.kube/cache/kcp-login/*.json; }
from_login() { jq -r ".$1" "$(login_file)"; }
# age lets the hour pass that a token lasts.
age() { jq '.expiry = "2020-01-01T00:00:00Z"' "$(login_file)" >"$DEMO_DIR/aged" && cat "$DEMO_DIR/aged" >"$(login_file)"; }
no_browser() { export BROWSER=$here/no-such-browser; }
whoami() { kubectl auth whoami -o jsonpath='{.status.userInfo.username}'; }
# answer_to_refresh TOKEN is the status with which the issuer answers it.
answer_to_refresh() {
  local endpoint
  endpoint=$(curl -fsS --cacert "$DEMO_CA" "$SERVER/idp/.well-known/openid-configuration" | jq -r .token_endpoint)
  curl -sS -o /dev/null -w '%{http_code}' --cacert "$DEMO_CA" "$endpoint" \
    --data-urlencode grant_type=refresh_token --data-urlencode client_id=kcp --data-urlencode "refresh_token=$1"
}

# ---------------------------------------------------------------------------------------
step "1. A server that can log people in"
say "kcp start"
start_server
grep -E "^(Add a user|Log in)" "$DEMO_DIR/kcp.log" | sed "s#$ROOT#.kcp#"
add_user alice

# ---------------------------------------------------------------------------------------
step "2. The line that the server printed is all that it takes"
become alice
refused "a server whose certificate nobody vouched for is refused" "is signed by an authority that is not trusted here" \
  kubectl kcp login "$SERVER"
refused "another server's fingerprint is refused" "it is another server, or its CA was replaced" \
  kubectl kcp login "$SERVER" --ca-fingerprint "sha256:$(printf '0%.0s' {1..64})"
# shellcheck disable=SC2086
run $LOGIN
assert_eq "she is who she said, in a workspace of her own" "oidc:alice root:users:alice" \
  "$(whoami) $(kubectl kcp ws --short | sed 's/-[a-z0-9]*$//')"
run kubectl get all
run kubectl create namespace shop
assert "the kubeconfig holds no secret" [ -z "$(grep -E 'token:|eyJ|password' "$KUBECONFIG")" ]
assert_eq "it is hers alone" "600 700 600" "$(stat -c %a "$KUBECONFIG" "$HOME/.kube/cache/kcp-login" "$(login_file)" | paste -sd ' ')"
run kubectl kcp doctor

# ---------------------------------------------------------------------------------------
step "3. An hour later the token renews itself"
no_browser
BEFORE=$(from_login idToken)
age
run kubectl get namespace shop
assert "kubectl got a new token, and nobody was asked" [ "$(from_login idToken)" != "$BEFORE" ]

# ---------------------------------------------------------------------------------------
step "4. The server is killed and started again: nobody logs in anew"
stop kcp KILL
refused "while it is away, one line says so" "cannot reach $SERVER: connection refused" kubectl kcp ws list
start_server
BEFORE=$(from_login idToken)
run kubectl get namespace shop
assert_eq "the token from before is still good: the keys were kept" "$BEFORE" "$(from_login idToken)"
age
run kubectl get namespace shop
assert "it was renewed too: the login was kept" [ "$(from_login idToken)" != "$BEFORE" ]

# ---------------------------------------------------------------------------------------
step "5. Logging out"
REFRESH=$(from_login refreshToken)
run kubectl kcp logout
assert "no token is left here" [ -z "$(ls "$HOME"/.kube/cache/kcp-login/*.json 2>/dev/null)" ]
assert_eq "the issuer has forgotten it as well" 400 "$(answer_to_refresh "$REFRESH")"
refused "the next command says how to log in" "hint: kubectl kcp login $SERVER --ca-fingerprint" kubectl kcp ws list

# ---------------------------------------------------------------------------------------
step "6. On a machine without a browser, over SSH"
export SSH_CONNECTION="192.0.2.1 50000 192.0.2.2 22" BROWSER=
# shellcheck disable=SC2086
run $LOGIN 2>"$DEMO_DIR/ssh.out" &
PID[login]=$!
wait_until 10 "it shows a code" grep -q "Waiting for the login" "$DEMO_DIR/ssh.out"
cat "$DEMO_DIR/ssh.out"
say "alice takes her phone, opens the page and enters the code"
"$here/../lib/device.sh" "$DEMO_DIR/ssh.out"
wait "${PID[login]}" || fail "the login by code failed: $(cat "$DEMO_DIR/ssh.out")"
tail -n 1 "$DEMO_DIR/ssh.out"
assert_eq "she is logged in there" "oidc:alice" "$(whoami)"
assert "her namespace is where it was" kubectl get namespace shop -o name

PASSED=1
printf '\n%sAll of it holds.%s\n' "$BOLD" "$RESET"
