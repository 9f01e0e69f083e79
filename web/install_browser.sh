#!/bin/sh
# Installs Chromium with apt, as root or with a sudo that asks nothing: the one without windows, which takes a third
# of the processor, or the usual one where there is no such package. Where that cannot be done, and no other Chromium
# is there, it says why, and the tests that need a browser are skipped; where CI is set it fails.
set -eu

if [ -x /usr/bin/chromium-headless-shell ]; then exit 0; fi
another() {
    for program in /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome; do
        if [ -x "$program" ]; then return 0; fi
    done
    return 1
}
without() {
    if another; then exit 0; fi
    echo "no browser for the tests of the pages: $1" >&2
    if [ -n "${CI:-}" ]; then exit 1; fi
    exit 0
}

command -v apt-get >/dev/null || without "install Chromium; there is no apt-get here to do it with"
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    without "install Chromium (apt-get install chromium-headless-shell); this needs root"
fi
export DEBIAN_FRONTEND=noninteractive
install() { # waits where another program installs: a new machine updates itself first
    $as_root apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "$1" >/dev/null 2>&1
}
echo "Installing Chromium ..."
another || $as_root apt-get -qq update >/dev/null 2>&1 || true # what is known already may do
install chromium-headless-shell || another || install chromium || without "apt-get could not install chromium"
