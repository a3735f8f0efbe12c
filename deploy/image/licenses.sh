#!/bin/sh
# Prints every library in the binary, its licence, and the licence's texts as its authors ship them; a text that many
# share stands once.
#
#   deploy/image/licenses.sh TARGET
set -eu

cd "$(dirname "$0")/../.."
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

text() {
    sum=$(sha256sum <"$1" | cut -c1-12)
    [ -e "$work/$sum" ] || cp "$1" "$work/$sum"
    printf '    %s: text %s\n' "$(basename "$1")" "$sum"
}

cat <<HEAD
orgdata-exporter is licensed under the Apache License 2.0 (LICENSE). It contains the libraries below. Each is named with its
licence and with the texts that its package ships; the texts follow. Where a package ships none, the text of the Apache License
is LICENSE beside this file, and that of the MIT licence the one of the other packages of the same project.

HEAD

# `normal`: what tests and build scripts need is not in the binary.
cargo tree --quiet --locked --target "$1" --edges normal --prefix none --format '{p}|{l}' | sed 's/ (proc-macro)//; s/ (\*)$//' |
    sort -u | while IFS='|' read -r package license; do
    name=${package%% v*}
    version=${package##* v}
    [ "$name" != orgdata-exporter ] || continue
    license=${license:-not named in the package}
    printf '%s %s\n    %s\n' "$name" "$version" "$license"
    found=
    for file in "$sources"/*/"$name-$version"/*; do
        case $(basename "$file" | tr '[:lower:]' '[:upper:]') in
        LICEN[CS]E* | COPYING* | COPYRIGHT* | NOTICE* | UNLICENSE*) [ -f "$file" ] && text "$file" && found=1 ;;
        esac
    done
    [ -n "$found" ] || echo "    (its package ships no text)"
done

printf 'SQLite\n    in the public domain: https://www.sqlite.org/copyright.html\n'
printf "The Rust standard library\n    MIT OR Apache-2.0\n"
for file in "$(rustc --print sysroot)"/share/doc/rust/licenses/MIT.txt "$(rustc --print sysroot)"/share/doc/rust/COPYRIGHT; do
    [ ! -f "$file" ] || text "$file"
done
printf 'musl\n    MIT\n'
[ ! -f /usr/share/doc/musl-dev/copyright ] || text /usr/share/doc/musl-dev/copyright

for file in "$work"/*; do
    printf '\n======== text %s\n\n' "$(basename "$file")"
    cat "$file"
done
