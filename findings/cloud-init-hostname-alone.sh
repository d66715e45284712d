#!/usr/bin/env bash
# On Rocky, Alma, RHEL and Fedora, a clone keeps its template's name if its user-data sets only `hostname: w1`.
#
# Expected: `hostname: w1` in user-data names the machine w1, on every distribution.
# What happens: on the RHEL family (and Photon) cloud-init prefers the FQDN to the host name. If user-data has no
# `fqdn`, cloud-init takes one from the data source: `local-hostname` in meta-data, or without that the machine's
# current name, which in a clone is the template's. So w1 is discarded, and all clones have the same name.
# With `fqdn: w1.example.org`, as Proxmox VE writes it once `searchdomain` is set, the same user-data gives w1 on
# Debian and w1.example.org on Rocky; and the kubelet takes the host name as the Node's name.
# Version: cloud-init 25.1.4 (Debian 13's package, which has the code of every distribution).
# Source of the rule: cloudinit/distros/rhel.py (prefer_fqdn), util.get_hostname_fqdn, DataSource.get_hostname.
# Why it matters: Proxmox VE's own meta-data contains only an instance-id. Its own user-data has `fqdn`,
# but a snippet given with `cicustom: user=` replaces it entirely, and most example snippets only set `hostname`.
# The second clone then joins Kubernetes under the first one's name. To avoid this, set `local-hostname` in
# meta-data, `fqdn` beside `hostname`, or `prefer_fqdn_over_hostname: false`.
#
# Needs root (a UTS namespace for the template's name), apt with Debian's keyring, Python 3 with venv.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo "run this as root: it gives a namespace a host name" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work/deb" "$work/state"
cd "$work"
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' > apt/sources.list
apt=(-o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent
  -o "Dir::State::Lists=$work/apt/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$work/apt/cache"
  -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
apt-get -qq "${apt[@]}" update
apt-get -qq "${apt[@]}" download cloud-init=25.1.4-1+deb13u1
dpkg-deb -x cloud-init_*.deb deb
python3 -m venv venv
venv/bin/pip -q install PyYAML==6.0.3 Jinja2==3.1.6 requests==2.32.5 configobj==5.0.9 oauthlib==3.3.1 jsonpatch==1.33 jsonschema==4.25.1

cat > names.py <<'PY'
import os
import socket
import sys

from cloudinit import distros, helpers, version
from cloudinit.cloud import Cloud
from cloudinit.config import cc_set_hostname
from cloudinit.sources import DataSource

DISTROS = ("debian", "ubuntu", "opensuse", "rocky", "almalinux", "rhel", "fedora", "photon")


def named(name, user_data, meta_data):
    """The host name that cloud-init's own module would set on that distribution."""
    state = sys.argv[1]
    paths = helpers.Paths({"cloud_dir": state, "run_dir": state})
    os.makedirs(os.path.join(state, "data"), exist_ok=True)
    for left in ("data/set-hostname", "instance/data/set-hostname"):
        if os.path.exists(os.path.join(state, left)):
            os.unlink(os.path.join(state, left))
    distro = distros.fetch(name)(name, {}, paths)
    source = DataSource({}, distro, paths)
    source.metadata = {"instance-id": "4f2c9d", **meta_data}
    written = []
    # All steps but the last are cloud-init's: the name is recorded instead of being applied to this machine.
    distro._write_hostname = lambda hostname, filename: written.append(hostname)
    distro._apply_hostname = lambda hostname: None
    cc_set_hostname.handle("set_hostname", user_data, Cloud(source, paths, {}, distro, None), [])
    return written[0]


print("cloud-init", version.version_string(), "- the template's host name:", socket.gethostname())
for title, user_data, meta_data in (
    ("hostname: w1", {"hostname": "w1"}, {}),
    ("hostname: w1, fqdn: w1.example.org", {"hostname": "w1", "fqdn": "w1.example.org"}, {}),
    ("hostname: w1, fqdn: w1", {"hostname": "w1", "fqdn": "w1"}, {}),
    ("hostname: w1, prefer_fqdn_over_hostname: false", {"hostname": "w1", "prefer_fqdn_over_hostname": False}, {}),
    ("hostname: w1; meta-data local-hostname: w1", {"hostname": "w1"}, {"local-hostname": "w1"}),
):
    by_name = {}
    for name in DISTROS:
        by_name.setdefault(named(name, dict(user_data), meta_data), []).append(name)
    print(title)
    for hostname, names in by_name.items():
        print("  %-16s %s" % (hostname, " ".join(names)))
PY
# shellcheck disable=SC2016
PYTHONPATH=$work/deb/usr/lib/python3/dist-packages unshare --uts sh -c '
  hostname k8s-template && exec venv/bin/python names.py "$1"' sh "$work/state" > got 2> log || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
cloud-init 25.1.4 - the template's host name: k8s-template
hostname: w1
  w1               debian ubuntu opensuse
  k8s-template     rocky almalinux rhel fedora photon
hostname: w1, fqdn: w1.example.org
  w1               debian ubuntu opensuse
  w1.example.org   rocky almalinux rhel fedora photon
hostname: w1, fqdn: w1
  w1               debian ubuntu opensuse rocky almalinux rhel fedora photon
hostname: w1, prefer_fqdn_over_hostname: false
  w1               debian ubuntu opensuse rocky almalinux rhel fedora photon
hostname: w1; meta-data local-hostname: w1
  w1               debian ubuntu opensuse rocky almalinux rhel fedora photon
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
