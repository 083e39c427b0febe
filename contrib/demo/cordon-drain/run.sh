#!/usr/bin/env bash
# The cordon and drain story, on real parts: a user logs in and deploys without naming a
# cluster; an admin empties one cluster, then tries the other; everything is killed; and a
# client that asks every 100 ms never sees an error. Every claim is an assertion.
# shellcheck disable=SC2034,SC2317
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../lib/demo.sh
. "$here/../lib/demo.sh"

# How long a cordoned cluster is watched for anything that moves.
: "${DEMO_CORDON_SECONDS:=60}"

ROOT=$DEMO_DIR/kcp
SERVER=https://127.0.0.1:6443
GATEWAY=10.200.0.100
CLUSTERS=(us-east1 us-west1)
PHYSICAL_DIR=$DEMO_DIR/physical

# Two people, each with a home of their own.
as_admin() { export HOME=$DEMO_DIR/admin-home KUBECONFIG=$DEMO_DIR/admin.kubeconfig; }
as_user() { export HOME=$DEMO_DIR/user-home KUBECONFIG=$DEMO_DIR/user.kubeconfig; }
mkdir -p "$DEMO_DIR/admin-home" "$DEMO_DIR/user-home"

admin() { (as_admin && in_ns kubectl "$@"); }
user() { (as_user && in_ns kubectl "$@"); }
# phys CLUSTER ARGS... is kubectl against a physical cluster.
phys() { local c=$1; shift; in_ns kubectl --kubeconfig "$PHYSICAL_DIR/$c/kubeconfig" "$@"; }

cleanup() {
  local name
  for name in pinger sampler gateway "${CLUSTERS[@]/#/syncer-}" kcp; do stop "$name"; done
  physical down --dir "$PHYSICAL_DIR" >>"$DEMO_DIR/physical.log" 2>&1
  [ -n "${DEMO_KEEP:-}" ] || [ "${PASSED:-}" != 1 ] || rm -rf "$DEMO_DIR"
}

start_server() {
  : >"$DEMO_DIR/kcp.log"
  spawn kcp kcp start --root-directory "$ROOT"
}
server_ready() { grep -q "kcp is ready" "$DEMO_DIR/kcp.log"; }

start_syncer() {
  local c=$1
  spawn "syncer-$c" syncer --from-kubeconfig "$DEMO_DIR/$c.syncer.kubeconfig" \
    --to-kubeconfig "$DEMO_DIR/$c.cluster.kubeconfig" \
    --sync-target-name "$c" --sync-target-uid "${TARGET_UID[$c]}" --sync-target-cluster "${TARGET_CLUSTER[$c]}"
}
declare -A TARGET_UID=() TARGET_CLUSTER=() TARGET_KEY=()

# Questions that the assertions ask.
target_ready() { [ "$(admin get synctarget "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
assignments() { user get assignments -n "${1:-shop}" -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}' | sort; }
serving() { [ "$(user get assignment "${TARGET_KEY[$1]}" -n "${2:-shop}" -o jsonpath='{.status.phase}')" = Serving ]; }
only_on() { [ "$(assignments "${2:-shop}")" = "${TARGET_KEY[$1]}" ]; }
ours() { phys "$1" get namespaces -l workload.kcp.io/syncer -o name; }
our_pods() { # pods in namespaces that a syncer made
  local ns
  for ns in $(ours "$1"); do phys "$1" get pods -n "${ns#namespace/}" -o name; done
}
is_empty() { [ -z "$(ours "$1")" ] && [ -z "$(our_pods "$1")" ]; }
traces() { # whatever a syncer, or its manifest, made in a cluster
  phys "$1" get namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings -o name |
    grep -E '/kcp-' || true
}
address_is() { [ "$(user get ingress demo -n shop -o jsonpath='{.status.loadBalancer.ingress[0].ip}')" = "$1" ]; }
answer() { in_ns curl -fsS --max-time 5 --resolve "demo.example.com:80:$GATEWAY" http://demo.example.com/hello; }
answers() { answer >/dev/null; }
all_answers() {
  local i
  for i in {1..20}; do grep -q "$1" <<<"$(answer)" || return 1; done
}
failures() { jq -r .failures "$DEMO_DIR/ping.json"; }
requests() { jq -r .requests "$DEMO_DIR/ping.json"; }
# no_failures also makes sure that the client did ask since the last time.
LAST_REQUESTS=0
no_failures() {
  local before=$LAST_REQUESTS
  wait_until 10 "the client goes on asking" requests_grew "$before"
  LAST_REQUESTS=$(requests)
  [ "$(failures)" = 0 ] || { jq -c .firstFailures "$DEMO_DIR/ping.json" >&2; fail "the client saw $(failures) failures in $(requests) requests"; }
  say "ok: $(requests) requests, 0 failures"
}
requests_grew() { [ "$(requests)" -gt "$1" ]; }
# What must never change because an object is placed or moved.
user_objects() {
  user get deployment,service,ingress,configmap,secret -n shop -o json |
    jq -S '[.items[] | {kind, name: .metadata.name, uid: .metadata.uid, generation: .metadata.generation,
      labels: .metadata.labels, annotations: .metadata.annotations, spec: .spec, data: .data}]'
}
physical_uids() { # of what syncers made, without pods, which rollouts replace
  local c ns
  for c in "${CLUSTERS[@]}"; do
    for ns in $(ours "$c"); do
      phys "$c" get "$ns" -o jsonpath='{.metadata.uid}{"\n"}'
      phys "$c" get deploy,svc,cm,secret,pods -n "${ns#namespace/}" -o json |
        jq -r '.items[] | select(.metadata.labels["workload.kcp.io/syncer"] != null or .kind == "Pod") | "\(.kind) \(.metadata.name) \(.metadata.uid)"' | sort
    done
  done
}
# sample writes the workspace's word on the deployment beside the truth, over and over.
sample() {
  while :; do
    user get deployment demo -n shop -o json 2>/dev/null |
      jq -c '{ready: (.status.readyReplicas // 0), available: (.status.availableReplicas // 0), wanted: .spec.replicas}' || true
    sleep 0.5
  done
}

# ---------------------------------------------------------------------------------------
step "1. A workspace server, two real clusters, a gateway"
physical up --dir "$PHYSICAL_DIR" --netns "$NETNS" --bin-dir "$KCP_BIN" --clusters "$(IFS=,; echo "${CLUSTERS[*]}")" ||
  fail "the physical clusters did not come up"
in_ns ip address add "$GATEWAY/32" dev lo
start_server
wait_until 60 "the server is ready" server_ready
say "$(grep 'Log in:' "$DEMO_DIR/kcp.log")"
LOGIN=$(sed -n 's/^Log in: *//p' "$DEMO_DIR/kcp.log")
DEMO_USER=alice DEMO_PASSWORD=$(head -c 12 /dev/urandom | base64)
export DEMO_USER DEMO_PASSWORD DEMO_CA=$ROOT/pki/ca.crt
kcp idp add-user "$DEMO_USER" --email alice@example.com --root-directory "$ROOT" <<<"$DEMO_PASSWORD"
spawn gateway kcp gateway --kubeconfig "$ROOT/gateway.kubeconfig" --listen "$GATEWAY:80" --address "$GATEWAY" \
  --name gateway-1 --state-dir "$DEMO_DIR/gateway"
cp "$ROOT/admin.kubeconfig" "$DEMO_DIR/admin.kubeconfig"
wait_until 30 "the gateway is registered" admin get gatewayinstance gateway-1

# ---------------------------------------------------------------------------------------
step "2. The admin registers both clusters"
as_admin
run kubectl kcp workspace create compute --use
for c in "${CLUSTERS[@]}"; do
  run kubectl kcp workload sync "$c" --labels "region=$c" --syncer-kubeconfig "$DEMO_DIR/$c.syncer.kubeconfig" -o "$DEMO_DIR/$c.yaml"
  say "the manifest goes to $c"
  phys "$c" apply -f "$DEMO_DIR/$c.yaml" >/dev/null
  read -r "TARGET_UID[$c]" "TARGET_CLUSTER[$c]" < <(admin get synctarget "$c" -o json | jq -r '"\(.metadata.uid) \(.metadata.annotations["kcp.io/cluster"])"')
  # The syncer runs beside the cluster, with the rights that the manifest gave it.
  sa=$(phys "$c" get serviceaccounts -A -o json | jq -r '.items[] | select(.metadata.namespace | startswith("kcp-syncer-")) | select(.metadata.name != "default") | "\(.metadata.namespace) \(.metadata.name)"' | head -n 1)
  token=$(phys "$c" create token "${sa#* }" -n "${sa% *}" --duration 24h)
  sed -e '/client-certificate-data\|client-key-data\|    token:/d' "$PHYSICAL_DIR/$c/kubeconfig" >"$DEMO_DIR/$c.cluster.kubeconfig"
  kubectl --kubeconfig "$DEMO_DIR/$c.cluster.kubeconfig" config set-credentials syncer --token "$token" >/dev/null
  kubectl --kubeconfig "$DEMO_DIR/$c.cluster.kubeconfig" config set-context --current --user syncer >/dev/null
  start_syncer "$c"
done
for c in "${CLUSTERS[@]}"; do wait_until 60 "$c is ready: its syncer heartbeats" target_ready "$c"; done
for c in "${CLUSTERS[@]}"; do TARGET_KEY[$c]=$(admin get synctarget "$c" -o jsonpath='{.status.key}'); done
run kubectl kcp workload list
run kubectl kcp workspace use root
in_ns kubectl apply -f - <<'YAML'
apiVersion: scheduling.kcp.io/v1alpha1
kind: Location
metadata: {name: default}
spec:
  description: Wherever there is room
  targetWorkspace: root:compute
YAML
run kubectl kcp workspace use root:compute

# ---------------------------------------------------------------------------------------
step "3. A user logs in and has a workspace"
as_user
assert "no home exists before the first login" [ -z "$(in_ns kubectl --kubeconfig "$DEMO_DIR/admin.kubeconfig" --server "$SERVER/clusters/root:users" get workspaces -o name)" ]
export BROWSER=$here/../lib/browser.sh
# shellcheck disable=SC2086
run $LOGIN
HOME_PATH=$(in_ns kubectl kcp workspace --short)
assert "the user stands in a workspace of their own: $HOME_PATH" grep -q '^root:users:alice' <<<"$HOME_PATH"
run kubectl get all
run kubectl kcp locations
assert "the workspace has inherited the Location" grep -q default < <(user kcp locations -o name)
assert "it has a default Placement" user get placement default

# ---------------------------------------------------------------------------------------
step "4. Plain kubectl deploys an application"
run kubectl create namespace shop
run kubectl apply -n shop -f "$here/app.yaml"
run kubectl rollout status deployment demo -n shop --timeout 120s
run kubectl get deployment,pods -n shop
assert_eq "2/2 are ready" "2 2" "$(user get deployment demo -n shop -o jsonpath='{.status.readyReplicas} {.spec.replicas}')"
assert_eq "the workspace shows two running pods" "Running Running" "$(user get pods -n shop -o jsonpath='{.items[*].status.phase}')"
wait_until 30 "the Ingress shows the gateway's address" address_is "$GATEWAY"
run kubectl get ingress -n shop
# The scheduler may choose either cluster; FROM is where it put the application.
FROM=us-east1 TO=us-west1
only_on "$FROM" || { FROM=us-west1 TO=us-east1; }
run kubectl kcp explain shop
assert "it runs on $FROM alone" only_on "$FROM"
assert "$TO has nothing of it" is_empty "$TO"
wait_until 30 "the gateway serves it" answers
spawn pinger pinger -url http://demo.example.com/hello -resolve "$GATEWAY:80" -expect "greeting=hello from my workspace" -out "$DEMO_DIR/ping.json"
wait_until 10 "a client asks every 100 ms, from here to the end" test -s "$DEMO_DIR/ping.json"
assert "the pods serve the ConfigMap and the Secret back" grep -q "greeting=hello from my workspace secret=s3cret" <<<"$(answer)"
OBJECTS=$(user_objects)
sample >"$DEMO_DIR/samples" &
PID[sampler]=$!

# ---------------------------------------------------------------------------------------
step "5. A rolling update"
run kubectl set image deployment/demo demo=demo.local/app:v2 -n shop
GENERATION=$(user get deployment demo -n shop -o jsonpath='{.metadata.generation}')
run kubectl rollout status deployment demo -n shop --timeout 120s
assert "rollout status waited for generation $GENERATION" [ "$(user get deployment demo -n shop -o jsonpath='{.status.observedGeneration}')" -ge "$GENERATION" ]
assert_eq "all replicas are of the new version when it returns" 2 "$(user get deployment demo -n shop -o jsonpath='{.status.updatedReplicas}')"
assert "every answer is of the new version by then" all_answers version=v2
no_failures
# The user changed the image; from here on nothing of theirs may change.
OBJECTS=$(user_objects)

# ---------------------------------------------------------------------------------------
step "6. Cordon: nothing new comes, nothing leaves"
as_admin
run kubectl kcp cordon "$FROM"
BEFORE=$(physical_uids)
as_user
run kubectl create namespace blog
run kubectl create deployment blog --image demo.local/app:v2 -n blog
run kubectl rollout status deployment blog -n blog --timeout 120s
assert "the new namespace went to $TO" only_on "$TO" blog
say "watching $DEMO_CORDON_SECONDS s: nothing moves"
for ((i = 0; i < DEMO_CORDON_SECONDS; i++)); do
  only_on "$FROM" || fail "the application left a cluster that is only cordoned"
  sleep 1
done
assert "no object on $FROM was touched" grep -qxF -f <(grep . <<<"$BEFORE") <<<"$(physical_uids)"
no_failures

# ---------------------------------------------------------------------------------------
step "7. Drain: started before stopped"
as_admin
BEFORE=$(physical_uids)
run kubectl kcp drain "$FROM" --dry-run | tee "$DEMO_DIR/preview.out"
assert "it would move to $TO" grep -qE "^$HOME_PATH +shop +Moves +$TO \(default\)" "$DEMO_DIR/preview.out"
assert "and nothing has moved" only_on "$FROM"
assert_eq "nor changed" "$BEFORE" "$(physical_uids)"
run kubectl kcp drain "$FROM" --timeout 180s 2>&1 | tee "$DEMO_DIR/drain.out"
assert "it ends with: $FROM is empty: safe to work on" grep -q "^$FROM is empty: safe to work on" "$DEMO_DIR/drain.out"
assert "$FROM has no pod and no namespace of ours" is_empty "$FROM"
assert "the application runs on $TO alone" only_on "$TO"
assert "the new copy was waited for before the old one was let go" awk '/shop.*WaitingForPods/ {waited = 1} /shop.*(Draining|Removing)/ && !waited {exit 1} END {exit !waited}' "$DEMO_DIR/drain.out"
assert "the drain showed the stages" grep -qE "shop.*(Applying|WaitingForPods|WaitingForGateway|Draining|Removing)" "$DEMO_DIR/drain.out"
assert_eq "spec, labels, annotations and generation of the user's objects are as before" "$OBJECTS" "$(user_objects)"
no_failures

# ---------------------------------------------------------------------------------------
step "8. Drain the only target: it is refused, and everything stays"
code=0
run kubectl kcp drain "$TO" --timeout 60s >"$DEMO_DIR/blocked.out" 2>&1 || code=$?
cat "$DEMO_DIR/blocked.out"
assert_eq "the command exits with 1" 1 "$code"
assert "it says that it is blocked" grep -qi "blocked" "$DEMO_DIR/blocked.out"
assert "it says why, for the other cluster" grep -q "$FROM at Location \"default\": it is drained" "$DEMO_DIR/blocked.out"
assert "the application still runs on $TO" serving "$TO"
no_failures
# The full one first: as long as it is drained, an empty one is where everything goes.
run kubectl kcp uncordon "$TO" "$FROM"
assert_eq "both are as before" "null null null null" "$(admin get synctargets -o json | jq -r '[.items[].spec | .unschedulable, .evictAfter] | map(if . == false then null else . end | tostring) | join(" ")')"
sleep 3
assert "nothing moves back by itself" only_on "$TO"

# ---------------------------------------------------------------------------------------
step "9. Kill everything in turn"
BEFORE=$(physical_uids)
say "kill -9 the server"
stop kcp KILL
sleep 3
start_server
wait_until 60 "the server is back" server_ready
for c in "${CLUSTERS[@]}"; do
  say "kill -9 the syncer of $c"
  stop "syncer-$c" KILL
  start_syncer "$c"
done
as_user
run kubectl scale deployment blog --replicas 2 -n blog
run kubectl rollout status deployment blog -n blog --timeout 120s
for c in "${CLUSTERS[@]}"; do wait_until 60 "$c is ready" target_ready "$c"; done
missing=$(comm -23 <(sort -u <<<"$BEFORE") <(physical_uids | sort -u))
assert_eq "no object in a physical cluster was deleted or made anew" "" "$missing"
assert "the user is still logged in" user get deployment demo -n shop
no_failures

# ---------------------------------------------------------------------------------------
step "10. A cluster leaves for good"
as_admin
run kubectl kcp workload unsync "$TO" --cluster-kubeconfig "$PHYSICAL_DIR/$TO/kubeconfig" --yes 2>&1 | tee "$DEMO_DIR/unsync.out"
assert "it was drained before its syncer was removed" awk '/shop +gone/ {gone = 1} /Removing the syncer/ && !gone {exit 1} END {exit !gone}' "$DEMO_DIR/unsync.out"
stop "syncer-$TO"
run kubectl kcp workload list
assert "$TO is not registered any more" [ "$(admin get synctargets -o jsonpath='{.items[*].metadata.name}')" = "$FROM" ]
assert "nothing of ours is left in it" [ -z "$(traces "$TO")" ]
assert "the application runs on $FROM again" only_on "$FROM"
assert_eq "the user's objects are as before" "$OBJECTS" "$(user_objects)"
no_failures

# ---------------------------------------------------------------------------------------
step "The client's account"
stop sampler
stop pinger
jq -c '{requests, failures, codes, versions, longestMillis}' "$DEMO_DIR/ping.json"
assert_eq "0 failures from the first request to the last" 0 "$(failures)"
# While a namespace is handed over, both copies count: replicas are the sum, as in a surge.
assert_eq "the workspace's word was true at every sample" 0 \
  "$(jq -s '[.[] | select(.ready < .wanted or .ready > 2 * .wanted + 1)] | length' "$DEMO_DIR/samples")"
PASSED=1
printf '\n%sAll of it holds: %s requests, 0 failures.%s\n' "$BOLD" "$(requests)" "$RESET"
