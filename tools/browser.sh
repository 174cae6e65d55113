#!/bin/sh
# Installs Debian's Chromium for the browser test of the HTML report, where that is possible. Safe to run again; never
# fails: without a browser the test skips and says why.
set -u
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no Chromium, and not root on Debian: the browser test of the HTML report will be skipped" >&2
    exit 0
fi
echo "installing chromium with apt-get for the browser test of the HTML report" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1
apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 ||
    echo "apt-get could not install chromium: the browser test of the HTML report will be skipped" >&2
exit 0
