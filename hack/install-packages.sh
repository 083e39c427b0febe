#!/usr/bin/env bash
# Installs the Debian packages that the testbed needs, where they are missing.
set -euo pipefail

declare -A command_of=(
  [containerd]=containerd [runc]=runc [crun]=crun [nftables]=nft [iproute2]=ip
  [jq]=jq [curl]=curl [iptables]=iptables
)
missing=()
for package in "${!command_of[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "${command_of[$package]}" >/dev/null || missing+=("$package")
done
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
# The package busybox has the same command, but one that needs libraries.
[ "$(dpkg-query -Wf '${Status}' busybox-static 2>/dev/null)" = "install ok installed" ] || missing+=(busybox-static)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "error: missing packages: ${missing[*]}" >&2
  echo "hint: run as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "Installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
