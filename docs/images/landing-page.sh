#!/usr/bin/env bash
# Takes docs/images/landing-page.png: the landing page of the demo, after a hundred events.
#
# Needs cargo, curl and, on Debian: apt-get install chromium pngquant fonts-noto-core fonts-noto-cjk
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
demo=
trap '[[ -z $demo ]] || { kill "$demo" && wait "$demo" || true; }; rm -r "$work"' EXIT

fail() {
    echo "landing-page.sh: $1" >&2
    [[ ! -e $work/log ]] || tail -n 20 "$work/log" >&2
    exit 1
}

for tool in cargo curl chromium pngquant; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
cargo build --locked
# On Unix, cargo replaces itself with the demo, so this is the demo's process.
cargo run --quiet --locked -- demo --web.listen-address=127.0.0.1:0 >"$work/out" 2>"$work/log" &
demo=$!

deadline=$((SECONDS + 180))
page=''
events=0
while ((events < 100)); do
    kill -0 "$demo" 2>/dev/null || fail "the demo ended"
    ((SECONDS < deadline)) || fail "the demo has not counted 100 events within 180 s"
    sleep 1
    page=$(awk '/what the exporter is doing/ { print $1 }' "$work/out")
    [[ -n $page ]] || continue
    events=$(curl --silent --fail --noproxy '*' "${page}metrics" |
        awk '/^orgdata_audit_events_total\{/ { sum += $NF } END { print sum + 0 }') || events=0
done

options=(--headless --hide-scrollbars --no-proxy-server --user-data-dir="$work/profile" "--window-size=1100,738")
# Chromium's sandbox does not work for root, and the page is our own.
((EUID)) || options+=(--no-sandbox)
chromium "${options[@]}" --screenshot="$work/page.png" "$page" >>"$work/log" 2>&1 || fail "chromium failed"
[[ -s $work/page.png ]] || fail "chromium took no picture"
pngquant --force --strip --output landing-page.png 64 -- "$work/page.png"
ls -l landing-page.png
