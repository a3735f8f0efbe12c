#!/bin/sh
# Makes the files of a release: for each architecture an archive, a Debian package and an rpm, the Helm chart, and checksums.
#
#   deploy/release/package.sh BUILT OUT
#   deploy/release/package.sh version
#
# BUILT has what deploy/image/build.sh wrote, in a directory for each architecture: amd64, arm64. One of them has to run on this
# machine: it prints the completions and the manual. Needs cargo, dpkg and helm. The same input gives the same archives, except for the chart.
set -eu

cd "$(dirname "$0")/../.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "$1" = version ]; then
    echo "$version"
    exit
fi

built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "package.sh: $out is not empty; its files would become part of the release" >&2 && exit 2; }
umask 022
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"
. deploy/image/cargo-tool.sh
cargo_tool cargo-deb 3.8.0
cargo_tool cargo-generate-rpm 0.21.1

triple() {
    case $1 in
    amd64) echo x86_64-unknown-linux-musl ;;
    arm64) echo aarch64-unknown-linux-musl ;;
    *) echo "package.sh: $built/$1: the directories have to be named amd64 and arm64" >&2 && exit 2 ;;
    esac
}

here=$built/$(dpkg --print-architecture)/usr/local/bin/orgdata-exporter
for directory in "$built"/*; do
    arch=${directory##*/}
    target=$(triple "$arch")
    # Cargo.toml names the files of the packages below this directory.
    stage=target/package
    rm -rf "$stage"
    mkdir -p "$stage/completions" "$stage/man" "$stage/systemd"
    cp "$directory/usr/local/bin/orgdata-exporter" LICENSE README.md CHANGELOG.md "$stage"
    cp "$directory"/usr/share/doc/orgdata-exporter/* "$directory/usr/share/licenses/orgdata-exporter/THIRD-PARTY" "$stage"
    for shell in bash zsh fish; do
        "$here" completions "$shell" >"$stage/completions/$shell"
    done
    "$here" man >"$stage/man/orgdata-exporter.1"
    for command in check dead-letters demo healthcheck simulate verify; do
        "$here" man "$command" >"$stage/man/orgdata-exporter-$command.1"
    done
    cp deploy/systemd/orgdata-exporter.env "$stage/systemd"
    cp deploy/systemd/orgdata-exporter.service "$stage/systemd"
    name=orgdata-exporter-$version-linux-$arch
    tar --create --sort=name --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        --transform "s|^\.|$name|" --directory "$stage" . | gzip --no-name >"$out/$name.tar.gz"
    # A package installs to /usr, the guide for the archive to /usr/local.
    sed -i 's|/usr/local/bin/|/usr/bin/|' "$stage/systemd/orgdata-exporter.service"
    cargo deb --quiet --locked --no-build --no-strip --target "$target" --output "$out/orgdata-exporter_${version}_$arch.deb"
    cargo generate-rpm --target "$target" --output "$out/orgdata-exporter-$version-1.${target%%-*}.rpm"
    cp "$stage/sbom.cdx.json" "$out/$name.sbom.cdx.json"
    cp "$stage/provenance.json" "$out/$name.provenance.json"
done
# The chart names the address of the repository, which its sources do not know.
cp -rL deploy/helm/orgdata-exporter "$stage/chart"
if [ -n "${SOURCE:-}" ]; then
    printf 'home: %s\nsources: [%s]\n' "$SOURCE" "$SOURCE" >>"$stage/chart/Chart.yaml"
fi
helm package "$stage/chart" --destination "$out" >/dev/null
cd "$out"
rm -f SHA256SUMS
sha256sum -- * >SHA256SUMS
