# Sourced by build.sh and by deploy/release/package.sh, in the root of the repository.

# cargo_tool NAME VERSION: installs a program with cargo into the target directory, once, and adds it to PATH.
cargo_tool() {
    root=${CARGO_TARGET_DIR:-$PWD/target}/tools/$1-$2
    [ -x "$root/bin/$1" ] || cargo install --quiet --locked --debug --root "$root" "$1@$2"
    PATH=$root/bin:$PATH
}
