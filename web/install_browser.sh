#!/bin/sh
# Installs Chromium with apt, as root or with a sudo that asks nothing. Where that cannot be done it says why, and
# the tests that need a browser are skipped; where CI is set it fails.
set -eu

for program in /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome; do
    if [ -x "$program" ]; then exit 0; fi
done

without() {
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
    without "install Chromium (apt-get install chromium); this needs root"
fi
echo "Installing Chromium ..."
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -qq update >/dev/null 2>&1 || true # what is known already may do
$as_root apt-get -qq install --no-install-recommends chromium >/dev/null 2>&1 || without "apt-get could not install chromium"
