# Sourced by the scripts beside it, which run in the root of the repository with the real kubectl and helm, KUBECONFIG, and an empty
# directory $work.
set -euo pipefail

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# denied WORDS COMMAND...: the command fails and says these words.
denied() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        fail "not denied ($words): $*: $said"
    fi
    [[ $said == *"$words"* ]] || fail "denied, but not with '$words': $said"
}
