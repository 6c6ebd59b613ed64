#!/usr/bin/env bash
# Builds oneTBB for ThreadSanitizer: tools/tsan_tbb.sh FOLDER installs it into FOLDER/tsan-tbb.
#
# ThreadSanitizer does not see the synchronisation of a oneTBB without instrumentation.
# Then it reports races that do not exist.
# The source is that of the installed libtbb-dev.
# It comes from the machine's own Debian mirror, and apt checks its signature.
set -euo pipefail

say() { printf 'tsan-tbb: %s\n' "$*"; }
fail() { printf 'tsan-tbb: %s\n' "$*" >&2; exit 1; }

(($# == 1)) || fail "usage: tools/tsan_tbb.sh FOLDER"
target="$1/tsan-tbb"
package="$(dpkg-query --show --showformat='${source:Package}=${source:Version}' libtbb-dev 2> /dev/null)" \
  || fail "libtbb-dev is not installed; tools/setup.sh installs it (on other systems build oneTBB with clang and -DTBB_SANITIZE=thread into $target)"

built="$package clang-19"
complete() { [[ "$(cat "$target/.complete" 2> /dev/null)" == "$built" ]]; }
if complete; then exit 0; fi
mkdir -p "$1"
exec 9> "$target.lock"
flock 9  # another clone may be building it
if complete; then exit 0; fi

say "building $package with clang-19 and TBB_SANITIZE=thread (takes about half a minute)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"  # apt fetches as a user of its own

# A private configuration with the machine's entries as source entries: /etc/apt does not change.
mkdir -p "$work/apt/sources.d" "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [[ -r "$list" ]] && sed -n 's/^[[:space:]]*deb\([[:space:]]\)/deb-src\1/p' "$list" | grep -v cdrom: > "$work/apt/sources.d/$(basename "$list" .list).list" || true
done
for list in /etc/apt/sources.list.d/*.sources; do
  [[ -r "$list" ]] && sed 's/^Types:.*/Types: deb-src/' "$list" > "$work/apt/sources.d/$(basename "$list")"
done
touch "$work/apt/sources.list"
apt=(apt-get -q -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts="$work/apt/sources.d"
  -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache")
if ((EUID == 0)); then chown _apt "$work/lists/partial" "$work/source"; fi

# A mirror of other packages may have no sources and fail here. Only the download of this one package must succeed.
"${apt[@]}" update > "$work/update.log" 2>&1 || true
(cd "$work/source" && "${apt[@]}" source --only-source "$package" > "$work/source.log" 2>&1) || {
  cat "$work/update.log" "$work/source.log" >&2
  fail "downloading the source package $package failed; are the Debian mirrors of /etc/apt reachable?"
}
source=$(find "$work/source" -mindepth 1 -maxdepth 1 -type d)

cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DTBB_SANITIZE=thread -DTBB_TEST=OFF -DTBBMALLOC_BUILD=OFF -DTBB_STRICT=OFF -DCMAKE_INSTALL_PREFIX="$target" -DCMAKE_INSTALL_LIBDIR=lib > "$work/build.log" 2>&1 \
  && cmake --build "$work/build" --parallel 2 >> "$work/build.log" 2>&1 || { tail -n 50 "$work/build.log" >&2; fail "the build of oneTBB failed, see its last lines above"; }
rm -rf "$target" "$target.new"
cmake --install "$work/build" --prefix "$target.new" > /dev/null
echo "$built" > "$target.new/.complete"
mv "$target.new" "$target"
say "ready: $target"
