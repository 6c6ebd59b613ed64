#!/usr/bin/env bash
# Tests what a new user does, in a new Debian 12 that has only git, make, ca-certificates and sudo.
# A new user clones HEAD and runs `make demo`, `make test`, `make install`. Then they move the sources away, and run
# `millrace doctor` and `millrace model` in another folder.
# Needs root and about 20 GB of disk. Uses the mirrors, proxies, certificates and pip settings of this machine.
#
#   MILLRACE_FRESH_SHARE_DEPS=1   use the wheels of this machine instead of downloading them
#   TMPDIR                        folder for the Debian (default: the folder of the wheels); it is removed at the end
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'fresh: %s\n' "$*"; }
fail() { printf 'fresh: %s\n' "$*" >&2; exit 1; }

# Runs in its own namespaces (see the end), so its mounts and processes end with it.
inside() {
  local root="$1" deps="$2" data="$3" home="$1/home/fresh" set
  say "installing Debian 12 from this machine's mirror"
  debootstrap --variant=minbase --include=git,make,ca-certificates,sudo bookworm "$root" "$MIRROR" > "$root.debootstrap.log" 2>&1 \
    || { tail -n 20 "$root.debootstrap.log"; fail "debootstrap failed: see its last lines above"; }

  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  printf '%s\n' "$SOURCES" > "$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries)' > "$root/etc/apt/apt.conf.d/90host" || true
  if [[ -r /etc/pip.conf ]]; then cp /etc/pip.conf "$root/etc/pip.conf"; fi
  if compgen -G '/usr/local/share/ca-certificates/*.crt' > /dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates > /dev/null 2>&1
  fi
  chroot "$root" useradd --create-home --shell /bin/bash fresh
  echo 'fresh ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/fresh"

  git -c safe.directory='*' clone --quiet --no-local . "$home/millrace"
  if [[ -n "$data" ]]; then
    mkdir -p "$home/shared/data"
    mount --bind -o ro "$data" "$home/shared/data"
  fi
  if [[ -n "$deps" ]]; then
    for set in core python test-weights browser tsan-tbb; do
      if [[ ! -e "$deps/$set/.complete" ]]; then continue; fi
      mkdir -p "$home/.cache/millrace/${deps##*/}/$set"
      mount --bind -o ro "$deps/$set" "$home/.cache/millrace/${deps##*/}/$set"
    done
  fi
  chroot "$root" find /home/fresh -xdev -path '/home/fresh/.cache/millrace/*/*' -prune -o -path /home/fresh/shared/data -prune \
    -o -exec chown --no-dereference fresh:fresh {} +
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"

  local keep=(HOME=/home/fresh USER=fresh PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 JOBS="${JOBS:-2}") name
  for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_PROXY PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy; do
    if [[ -n "${!name:-}" ]]; then keep+=("$name=${!name}"); fi
  done
  if [[ -n "$data" ]]; then keep+=(MILLRACE_TEST_DATA=/home/fresh/shared/data); fi
  say "make demo, make test, make install, millrace doctor and millrace model as a new user"
  chroot "$root" /usr/sbin/runuser -u fresh -- env -i "${keep[@]}" bash -c 'set -e
    cd ~/millrace
    timed() { local begun=$SECONDS; "$@"; echo "fresh: $*: $((SECONDS - begun)) s"; }
    timed make demo
    test "$(find build/demo/out/overlay -name "*.jpg" -size +50k | wc -l)" = 48
    timed make test
    make install
    mv ~/millrace ~/away
    cd /
    ~/.local/bin/millrace doctor
    for weights in ~/.cache/millrace/*/test-weights/*.pth; do  # without network, make test has no weights
      if test -e "$weights"; then ~/.local/bin/millrace model "$weights" --out ~/packages; fi
    done'
}
if [[ "${1:-}" == --inside ]]; then
  inside "$2" "$3" "$4"
  exit
fi

((EUID == 0)) || fail "making a Debian needs root: run as root, or sudo --preserve-env make fresh"
git diff --quiet HEAD || say "the working tree has changes; this tests the last commit without them"
if ! command -v debootstrap > /dev/null; then
  say "installing debootstrap"
  apt-get update -q > /dev/null && apt-get install -y -q --no-install-recommends debootstrap > /dev/null \
    || fail "installing debootstrap failed; install it yourself: apt-get install debootstrap"
fi

# Debian's own mirrors in apt's configuration, one "URI suite component" a line.
targets=$(apt-get indextargets --format '$(LABEL)|$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u | grep -E '^Debian(-Security)?\|.* bookworm' || true)
[[ -n "$targets" ]] || fail "apt has no mirror of Debian 12 here; run apt-get update first"
SOURCES=$(sed 's/^[^|]*|/deb /' <<< "$targets")
MIRROR=$(sed -n 's/^Debian|\([^ ]*\) bookworm .*/\1/p' <<< "$targets" | head -n 1)
export SOURCES MIRROR

deps=$(tools/setup.sh where)
base="${TMPDIR:-$(dirname "$deps")}"
mkdir -p "$base"
free_gb=$(($(df --output=avail -k "$base" | tail -n 1) / 1000000))
((free_gb >= 20)) || fail "$base has $free_gb GB left, but about 20 GB are needed; set TMPDIR to a folder with more space"
data=""
if [[ -d "${MILLRACE_TEST_DATA:-../shared/data}" ]]; then data=$(realpath "${MILLRACE_TEST_DATA:-../shared/data}"); fi
if [[ "${MILLRACE_FRESH_SHARE_DEPS:-}" != 1 ]]; then deps=""; fi

root=$(mktemp -d "$base/fresh.XXXXXX")
clean_up() {
  if grep -q " $root/" /proc/mounts; then fail "$root still has mounts, so nothing in it was removed; unmount them and delete it"; fi
  rm -rf --one-file-system "$root" "$root.debootstrap.log"
}
trap clean_up EXIT
chmod 755 "$root"
mkdir -p build
log=$PWD/build/fresh.log
say "in $root; the whole output goes to build/fresh.log"
status=0
unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" --inside "$root" "$deps" "$data" > "$log" 2>&1 || status=$?
tail -n 60 "$log"
say "$( ((status == 0)) && echo passed || echo "FAILED with exit code $status" ) after $((SECONDS / 60)) min $((SECONDS % 60)) s"
exit $status
