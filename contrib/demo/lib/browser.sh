#!/usr/bin/env bash
# A browser for scripts: opens the login page that kubectl kcp login names, fills in the
# provider's real form as a person would, and follows the way back to the command.
#
# DEMO_USER, DEMO_PASSWORD, DEMO_CA (the provider's certificate authority)
set -euo pipefail

jar=$(mktemp)
trap 'rm -f "$jar"' EXIT
get() { curl -fsS --cacert "$DEMO_CA" --cookie "$jar" --cookie-jar "$jar" "$@"; }
# field NAME reads a hidden field of the form on standard input.
field() { sed -n "s/.*name=\"$1\" value=\"\([^\"]*\)\".*/\1/p" | head -n 1 | sed 's/&#43;/+/g; s/&amp;/\&/g; s/&#34;/"/g'; }

page=$(get -L -w '\n%{url_effective}' "$1")
url=${page##*$'\n'}
action=$(sed -n 's/.*<form method="post" action="\([^"]*\)".*/\1/p' <<<"$page" | head -n 1 | sed 's/&amp;/\&/g')
origin=$(sed -E 's#^(https?://[^/]+).*#\1#' <<<"$url")
case $action in
  "") target=$url ;;
  http*) target=$action ;;
  /*) target=$origin$action ;;
  *) target=${url%/*}/$action ;;
esac
get -L -o /dev/null \
  --data-urlencode "csrf=$(field csrf <<<"$page")" \
  --data-urlencode "id=$(field id <<<"$page")" \
  --data-urlencode "username=$DEMO_USER" \
  --data-urlencode "password=$DEMO_PASSWORD" \
  "$target"
