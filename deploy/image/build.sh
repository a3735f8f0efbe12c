#!/bin/sh
# Builds what the image contains: a static binary, the licence texts, an SBOM, a provenance statement, and an empty
# directory for the state. The Dockerfile runs it; `.ci/run` runs it on its own machine.
#
#   deploy/image/build.sh amd64|arm64 OUT
#
# Needs, on Debian: cargo, rustup, and `deploy/image/build.sh tools ARCH` once as root. The other architecture is compiled
# by a cross compiler, so nothing is emulated. The same sources, compiler and paths give the same bytes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

triple() {
    case $1 in
    amd64) echo x86_64 ;;
    arm64) echo aarch64 ;;
    *) echo "build.sh: architecture $1: amd64 and arm64 can be built" >&2 && exit 2 ;;
    esac
}

# musl's headers for the C of SQLite and ring, and a C compiler for that architecture.
tools() {
    cpu=$(triple "$1")
    packages="ca-certificates make musl-dev:$1"
    if [ "$1" = "$(dpkg --print-architecture)" ]; then
        packages="$packages gcc libc6-dev"
    else
        dpkg --add-architecture "$1"
        packages="$packages gcc libc6-dev gcc-$(echo "$cpu" | tr _ -)-linux-gnu"
    fi
    apt-get -qq update
    # shellcheck disable=SC2086 # a list
    apt-get -qq install --no-install-recommends -y $packages >/dev/null
}

if [ "$1" = tools ]; then
    tools "$2"
    exit
fi

cpu=$(triple "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
target=$cpu-unknown-linux-musl
specs=/usr/lib/$cpu-linux-musl/musl-gcc.specs
cd "$here/../.."

# The binary contains the list of its dependencies, and the SBOM is made from that list.
. "$here/cargo-tool.sh"
cargo_tool cargo-auditable 0.7.7
cargo_tool auditable2cdx 0.1.0

# A panic does not pass through C, so tables to unwind it would only take space.
# The headers are musl's and not those of the compiler's own C library: SQLite would link functions that musl lacks.
# Outline atomics are functions of a library that is not linked.
flags="-specs $specs -fno-asynchronous-unwind-tables"
[ "$cpu" != aarch64 ] || flags="$flags -mno-outline-atomics"
upper=$(echo "$target" | tr a-z- A-Z_)
export "CC_$(echo "$target" | tr - _)=$cpu-linux-gnu-gcc"
export "CFLAGS_$(echo "$target" | tr - _)=$flags -ffile-prefix-map=$PWD=. -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
export "CARGO_TARGET_${upper}_LINKER=$cpu-linux-gnu-gcc"
# No path of this machine is in the binary, so that it is the same from any machine. Packed relocations are 0.35 MiB less;
# Debian's linker has them for amd64 only, and ignores the option elsewhere.
rustflags="--remap-path-prefix=$PWD=/orgdata-exporter --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
export "CARGO_TARGET_${upper}_RUSTFLAGS=$rustflags -Clink-arg=-Wl,-z,pack-relative-relocs"
export CARGO_INCREMENTAL=0

revision=${ORGDATA_BUILD_REVISION:-$(git rev-parse HEAD)}
rustup target add "$target"
# Inlining across crates as for size: 0.5 MiB less, and as fast by benches/tail.rs.
cargo auditable rustc --profile dist --locked --bin orgdata-exporter --target "$target" -- -Cllvm-args=-inline-threshold=50

licenses=$out/usr/share/licenses/orgdata-exporter
mkdir -p "$out/usr/local/bin" "$licenses" "$out/etc/ssl/certs" "$out/state"
cp "${CARGO_TARGET_DIR:-target}/$target/dist/orgdata-exporter" "$out/usr/local/bin/"
cp LICENSE "$licenses/"
documents=$out/usr/share/doc/orgdata-exporter
mkdir -p "$documents"
auditable2cdx "$out/usr/local/bin/orgdata-exporter" >"$documents/sbom.cdx.json"
digest() { sha256sum "$1" | cut -d' ' -f1; }
cat >"$documents/provenance.json" <<STATEMENT
{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [{"name": "orgdata-exporter", "digest": {"sha256": "$(digest "$out/usr/local/bin/orgdata-exporter")"}}],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": {
    "buildDefinition": {
      "buildType": "urn:orgdata-exporter:deploy/image/build.sh",
      "externalParameters": {"architecture": "$1", "profile": "dist"},
      "internalParameters": {"rustc": "$(rustc --version)", "cc": "$("$cpu-linux-gnu-gcc" --version | head -n 1)"},
      "resolvedDependencies": [
        {"name": "source", "digest": {"gitCommit": "$revision"}},
        {"name": "Cargo.lock", "digest": {"sha256": "$(digest Cargo.lock)"}}
      ]
    },
    "runDetails": {"builder": {"id": "${ORGDATA_BUILDER:-urn:orgdata-exporter:local}"}}
  }
}
STATEMENT
cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
"$here/licenses.sh" "$target" >"$licenses/THIRD-PARTY"
chmod 0755 "$out/usr/local/bin/orgdata-exporter"
chmod 0644 "$licenses"/* "$documents"/* "$out/etc/ssl/certs/ca-certificates.crt"
# Sets all file times to SOURCE_DATE_EPOCH, so that builds are reproducible.
find "$out" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
