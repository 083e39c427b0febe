#!/usr/bin/env bash
# Workspaces: a tree of Kubernetes APIs on one server, of which nobody sees another's. No
# cluster is needed, and no root. Every claim is an assertion.
# shellcheck disable=SC2034
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NETNS=
# shellcheck source=../lib/demo.sh
. "$here/../lib/demo.sh"
# shellcheck source=../lib/server.sh
. "$here/../lib/server.sh"

# Questions that the assertions ask.
value() { kubectl get configmap settings -n shop -o jsonpath='{.data.owner}'; }
# answer PATH is what the server says to this person about a workspace: status and message.
answer() {
  kubectl get --raw "/api/v1/namespaces" --server "$SERVER/clusters/$1" 2>&1 >/dev/null | sed "s#$1#PATH#g"
}
can_list() { kubectl get namespaces --server "$SERVER/clusters/$1" -o name; }

# ---------------------------------------------------------------------------------------
step "1. A server, an organization, two people"
say "kcp start"
start_server
for name in alice bob; do add_user "$name"; done
become admin
cp "$ROOT/admin.kubeconfig" "$DEMO_DIR/admin.kubeconfig"
export KUBECONFIG=$DEMO_DIR/admin.kubeconfig
run kubectl get workspacetypes
run kubectl kcp ws create acme --type organization --use
run kubectl kcp ws create sales
run kubectl kcp ws create research
assert_eq "below an organization stand teams" "team team" "$(kubectl get workspaces -o jsonpath='{.items[*].spec.type.name}')"
refused "a team stands nowhere else" 'stands below one of type "organization"' kubectl kcp ws create lost --type team --workspace root
run kubectl kcp ws tree root
assert_eq "the tree as data" "root:acme:research root:acme:sales" \
  "$(kubectl kcp ws tree root -o json | jq -r '.children[] | select(.name == "acme").children[].path' | sort | paste -sd ' ')"

# ---------------------------------------------------------------------------------------
step "2. Alice makes workspaces of her own"
become alice
# shellcheck disable=SC2086
run $LOGIN
HOME_PATH=$(kubectl kcp ws --short)
for name in red blue; do
  run kubectl kcp ws create "$name" --use
  run kubectl create namespace shop
  run kubectl create configmap settings "--from-literal=owner=$name" -n shop
  run kubectl create deployment web --image nginx -n shop
  run kubectl kcp ws ..
done

# ---------------------------------------------------------------------------------------
step "3. The same names, and nothing in common"
run kubectl kcp ws red
assert_eq "red sees its own" red "$(value)"
run kubectl kcp ws ..:blue
assert_eq "blue sees its own" blue "$(value)"
run kubectl delete namespace shop
assert "blue's is gone" [ -z "$(kubectl get namespace shop --ignore-not-found -o name)" ]
run kubectl kcp ws -
assert_eq "red's is untouched" "red web" "$(value) $(kubectl get deployment -n shop -o jsonpath='{.items[*].metadata.name}')"
say "each has its own RBAC, service accounts and API discovery: it is a cluster to every client"
run kubectl get clusterrolebindings,serviceaccounts -A
run kubectl kcp ws '~'
run kubectl kcp ws tree
assert_eq "the Tab key knows them: kubectl kcp ws b<Tab>" blue "$(kubectl __complete kcp ws use b 2>/dev/null | sed -n '1s/\t.*//p')"

# ---------------------------------------------------------------------------------------
step "4. A stranger sees nothing, not even whether it is there"
become bob
# shellcheck disable=SC2086
run $LOGIN
refused "bob may not enter alice's workspace" "you may not enter workspace" kubectl kcp ws "$HOME_PATH:red"
refused "plain requests neither" "access to the workspace denied, or there is no such workspace" \
  kubectl get --raw /api/v1/namespaces --server "$SERVER/clusters/$HOME_PATH:red"
assert_eq "one that does not exist gets the same answer" "$(answer "$HOME_PATH:red")" "$(answer "$HOME_PATH:none")"
say "alice lets him in, to look"
become alice
run kubectl kcp ws red
run kubectl create clusterrolebinding bob-enters --clusterrole kcp:workspace-access --user oidc:bob
run kubectl create clusterrolebinding bob-views --clusterrole view --user oidc:bob
become bob
wait_until 10 "the server knows it" can_list "$HOME_PATH:red"
run kubectl kcp ws "$HOME_PATH:red"
assert_eq "bob reads what is there" red "$(value)"
refused "and changes nothing" "forbidden" kubectl delete configmap settings -n shop
refused "blue is still closed to him" "you may not enter workspace" kubectl kcp ws "$HOME_PATH:blue"

# ---------------------------------------------------------------------------------------
step "5. A name that is used again shows nothing old"
become alice
run kubectl kcp ws ..
OLD=$(kubectl get workspace red -o jsonpath='{.spec.cluster}')
run kubectl kcp ws delete red --yes
run kubectl kcp ws create red --use
assert "it is another one: its id differs" [ "$(kubectl get workspace red -o jsonpath='{.spec.cluster}' --server "$SERVER/clusters/$HOME_PATH")" != "$OLD" ]
assert_eq "it is empty" "default" "$(kubectl get namespaces -o jsonpath='{.items[*].metadata.name}')"
become bob
refused "bob's permission went with the old one" "you may not enter workspace" kubectl kcp ws "$HOME_PATH:red"

PASSED=1
printf '\n%sAll of it holds.%s\n' "$BOLD" "$RESET"
