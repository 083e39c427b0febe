#!/usr/bin/env bash
# For stories that need a server and people, but no cluster: sourced after demo.sh.
# shellcheck disable=SC2034,SC2154

ROOT=$DEMO_DIR/kcp
# The one that a port is free now does not keep it free; nobody else takes it on purpose.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}
PORT=$(free_port)
SERVER=https://127.0.0.1:$PORT
export DEMO_CA=$ROOT/pki/ca.crt
# What a terminal on the machine of whoever runs the story would change.
unset SSH_CONNECTION DISPLAY WAYLAND_DISPLAY KUBERNETES_EXEC_INFO

cleanup() {
  stop kcp
  [ -n "${DEMO_KEEP:-}" ] || [ "${PASSED:-}" != 1 ] || rm -rf "$DEMO_DIR"
}

start_server() {
  : >"$DEMO_DIR/kcp.log"
  spawn kcp kcp start --secure-port "$PORT" --root-directory "$ROOT"
  wait_until 60 "the server is ready" grep -q "kcp is ready" "$DEMO_DIR/kcp.log"
  LOGIN=$(sed -n 's/^Log in: *//p' "$DEMO_DIR/kcp.log")
}

# add_user NAME makes a person who can log in.
add_user() {
  local word
  word=$(head -c 12 /dev/urandom | base64)
  printf '%s' "$word" >"$DEMO_DIR/$1.password"
  kcp idp add-user "$1" --email "$1@example.com" --root-directory "$ROOT" <<<"$word" >/dev/null
}

# become NAME: what follows is typed by this person, at a machine with a browser.
become() {
  export HOME=$DEMO_DIR/home-$1 KUBECONFIG=$DEMO_DIR/home-$1/.kube/config
  export DEMO_USER=$1 DEMO_PASSWORD BROWSER=$here/../lib/browser.sh
  DEMO_PASSWORD=$(cat "$DEMO_DIR/$1.password" 2>/dev/null || true)
  mkdir -p "$HOME"
}

# admin runs kubectl as the server's administrator, unseen.
admin() { kubectl --kubeconfig "$ROOT/admin.kubeconfig" "$@"; }
