# Root and apt functions for the other scripts. Source it; it needs `set -eu` and runs nothing itself.

root=""            # after find_root: the command that gives root (empty, "sudo -n", "sudo"), or "none"
apt_updated=""

find_root() {
    if [ "$(id -u)" = 0 ]; then root=""
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then root="sudo -n"
    elif command -v sudo >/dev/null && [ -t 0 ]; then root="sudo"
    else root="none"
    fi
}

apt_get() {
    $root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -qq "$@"
}

update_apt() {
    [ -z "$apt_updated" ] || return 0
    apt_get update || echo "${0##*/}: apt-get update failed; going on with the package lists that are there" >&2
    apt_updated=1
}

# Install packages, silent unless it fails.
install_quietly() {
    local log status=0
    log=$(mktemp)
    apt_get install -y --no-install-recommends "$@" >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}
